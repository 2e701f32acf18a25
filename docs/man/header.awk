# header.awk - the section 3 page of a public header: its functions by name, and
# its text, which is the contract
function escaped(text) {
  gsub(/\\/, "\\e", text)
  gsub(/-/, "\\-", text)
  return text ~ /^[.']/ ? "\\&" text : text
}
{ line[NR] = $0 }
/^DFGNN_API/ { wanted = 1 }
wanted && match($0, /dfgnn_[a-z0-9_]+\(/) {
  functions = functions ", " substr($0, RSTART, RLENGTH - 1)
  wanted = 0
}
END {
  printf ".TH %s 3 \"\" \"dfgnn %s\" \"Library Functions\"\n", page, version
  printf ".SH NAME\n%s.h%s \\- the functions of %s.h\n", page, functions, page
  printf ".SH SYNOPSIS\n.B #include <%s.h>\n.PP\nLink with \\-ldfgnn.\n", page
  print ".SH CONTENTS\n.nf"
  for (i = 1; i <= NR; i++)
    if (match(line[i], /^\/\* ---- .* -+ \*\/$/)) {
      title = substr(line[i], 9)
      sub(/ -+ \*\/$/, "", title)
      printf ".fi\n.SS %s\n.nf\n", escaped(title)
    } else
      print escaped(line[i])
  print ".fi\n.SH SEE ALSO\n.BR dfgnn (7)"
}
