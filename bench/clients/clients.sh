#!/bin/sh
# Installs real packages, each into an environment of its own, and trains their models
# as they are and after dfgnn.accelerate (clients.py).
#
#   bench/clients/clients.sh FOLDER [PACKAGE...]
#
# FOLDER gets the environments, which are kept, and PACKAGE.json.  PACKAGEs are
# torch_geometric anemoi-models relbench nvidia-physicsnemo; all unless some are named.
# The environments see torch and torch_geometric of PYTHON (python3).
#
#   DEVICE=cpu   SCALE=1   STEPS=5   DFGNN_LIBRARY=FILE (default: that of BUILD)
. "$(dirname "$0")/../lib.sh"

[ $# -ge 1 ] || {
  sed -n '2,11s/^# \{0,1\}//p' "$0" >&2
  exit 2
}
folder=$1
shift
here=$(cd "$(dirname "$0")" && pwd)
top=$here/../..
python=${PYTHON:-python3}
[ -n "${DFGNN_LIBRARY-}" ] || DFGNN_LIBRARY=${BUILD-$top/build}/.libs/libdfgnn.so
export DFGNN_LIBRARY PYTHONPATH="$top/python"

# prints what it needs beside itself, and its cases
needs_of() {
  case $1 in
  torch_geometric) echo : pyg_gat pyg_sage pyg_gin pyg_pna pyg_edge_cnn pyg_gps pyg_schnet ;;
  anemoi-models) echo : anemoi_graph_transformer ;;
  relbench) echo pytorch-frame : relbench_sage ;;
  nvidia-physicsnemo) echo : physicsnemo_mesh ;;
  *)
    echo "clients.sh: found package '$1', expected torch_geometric, anemoi-models," \
      "relbench or nvidia-physicsnemo" >&2
    exit 2
    ;;
  esac
}

mkdir -p "$folder"
[ $# -gt 0 ] ||
  set -- torch_geometric anemoi-models relbench nvidia-physicsnemo
for package; do
  needed=$(needs_of "$package") || exit 2
  cases=${needed#*:} with=${needed%%:*}
  place=$folder/$package
  run=$python
  if [ "$package" != torch_geometric ]; then
    run=$place/bin/python
    [ -e "$place/installed" ] || {
      say "installing $package"
      "$python" -m venv "$place"
      "$python" -c 'import torch, os; print(os.path.dirname(os.path.dirname(torch.__file__)))' \
        >"$("$run" -c 'import site; print(site.getsitepackages()[0])')/torch.pth"
      # shellcheck disable=SC2086
      if "$run" -m pip install -q "$package" $with >&2; then
        : >"$place/installed"
      else
        say "$package cannot be installed here"
        continue
      fi
    }
  fi
  say "$package"
  # shellcheck disable=SC2086
  "$run" -W ignore "$here/clients.py" $cases --device "${DEVICE:-cpu}" \
    --scale "${SCALE:-1}" --steps "${STEPS:-5}" --json >"$folder/$package.new" &&
    mv "$folder/$package.new" "$folder/$package.json"
done
"$python" "$here/clients.py" --table "$folder"/*.json
