#!/bin/sh
# dfgnn-tune program checks a program and its gradient, and says what is wrong.
. "$(dirname "$0")/lib.sh"

cat >"$work/attention.txt" <<'END'
dst q[H,D]; src k[H,D], v[H,D]
out = sum_in(softmax_in(sum(q * k) * 0.25) * v)
END

promise "both passes are checked and timed"
status 0 dfgnn-tune program "$work/attention.txt" uniform:nodes=200,edges=900 \
  --dim 8 --heads 2 --dtype f16
prints 'return out = sum_in'
prints 'forward  *1  *0 .* yes'
prints 'backward  *1  *1 .* yes'

promise "a wrong program is refused with line and column"
echo 'dst q[D]; out = sofmax_in(q)' >"$work/wrong.txt"
status 1 dfgnn-tune program "$work/wrong.txt" uniform:nodes=20,edges=90
says wrong.txt "line 1, column 17" sofmax_in

promise "a file that is missing is named"
status 1 dfgnn-tune program "$work/none.txt" uniform:nodes=20,edges=90
says 'none.txt: cannot be opened'
