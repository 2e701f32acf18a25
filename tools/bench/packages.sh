#!/bin/sh
# Installs real packages, each into an environment of its own, and trains their models
# as they are and after dfgnn.accelerate (python_models.py).
#
#   tools/bench/packages.sh FOLDER [PACKAGE...]
#
# FOLDER gets the environments, which are kept, and PACKAGE.json.  PACKAGEs are
# torch_geometric graphgym anemoi-models relbench nvidia-physicsnemo orb-models
# torchmd-net torch-geometric-temporal torch-geometric-signed-directed pygod; all unless
# some are named.  The environments see the packages of PYTHON (python3), which has torch
# and torch_geometric.
#
#   DEVICE=cpu   SCALE=.05   DFGNN_LIBRARY=FILE (default: that of BUILD)
set -eu
say() { echo "$(date -u +%H:%M:%S) $*" >&2; }

case ${1--} in -*)
  sed -n '2,12s/^# \{0,1\}//p' "$0" >&2
  exit 2
  ;;
esac
folder=$1
shift
here=$(cd "$(dirname "$0")" && pwd)
top=$here/../..
python=${PYTHON:-python3}
[ -n "${DFGNN_LIBRARY-}" ] || DFGNN_LIBRARY=${BUILD-$top/build}/.libs/libdfgnn.so
export DFGNN_LIBRARY PYTHONPATH="$top/python"

cases_of() {
  case $1 in
  torch_geometric)
    echo zoo_gcn zoo_sage zoo_gin zoo_gat zoo_gatv2 zoo_pna zoo_edge_cnn \
      zoo_deeper zoo_polynormer zoo_sgformer zoo_lightgcn zoo_gin_molecules \
      zoo_gat_molecules zoo_gps_molecules zoo_attentivefp_molecules pyg_schnet
    ;;
  graphgym)
    echo graphgym_gcn graphgym_gat graphgym_sage graphgym_gin graphgym_general \
      graphgym_general_edge
    ;;
  anemoi-models)
    echo anemoi_graph_transformer anemoi_graph_transformer_pyg anemoi_gnn
    ;;
  relbench) echo relbench_sage relbench_gat ;;
  nvidia-physicsnemo) echo physicsnemo_mesh ;;
  orb-models) echo orb_v3 ;;
  torchmd-net) echo torchmd_graph_network ;;
  torch-geometric-temporal) echo temporal_a3tgcn temporal_conv_gru ;;
  torch-geometric-signed-directed) echo signed_sdgnn directed_dgcn ;;
  pygod) echo pygod_dominant pygod_done ;;
  *)
    echo "packages.sh: found package '$1', expected torch_geometric, graphgym," \
      "anemoi-models, relbench, nvidia-physicsnemo, orb-models, torchmd-net," \
      "torch-geometric-temporal, torch-geometric-signed-directed or pygod" >&2
    exit 2
    ;;
  esac
}

site_of() {
  "$1" -c 'import site; print(site.getsitepackages()[0])'
}

# The package with what it needs beside torch and torch_geometric.
install() {
  pip="$2 -m pip install -q --disable-pip-version-check"
  case $1 in
  graphgym) $pip yacs ;;
  anemoi-models) # wants a torch that is older than 2.11, and runs with it
    $pip --no-deps anemoi-models && $pip anemoi-utils einops hydra-core
    ;;
  relbench) $pip relbench pytorch-frame ;;
  nvidia-physicsnemo) # torch_scatter is compiled here, for a quarter of an hour
    $pip nvidia-physicsnemo wheel 'setuptools<80' &&
      FORCE_ONLY_CPU=1 $pip --no-build-isolation torch-scatter
    ;;
  torch-geometric-temporal) # asks torch_sparse, which has no wheel, for a name
    $pip --no-deps "$1" && $pip decorator networkx &&
      echo 'class SparseTensor: pass' >"$(site_of "$2")/torch_sparse.py"
    ;;
  *) $pip "$1" ;;
  esac
}

mkdir -p "$folder"
[ $# -gt 0 ] || set -- torch_geometric graphgym anemoi-models relbench \
  nvidia-physicsnemo orb-models torchmd-net torch-geometric-temporal \
  torch-geometric-signed-directed pygod
for package; do
  cases=$(cases_of "$package") || exit 2
  place=$folder/$package
  run=$python
  if [ "$package" != torch_geometric ]; then
    run=$place/bin/python
    [ -e "$place/installed" ] || {
      say "installing $package"
      "$python" -m venv "$place"
      "$python" -c 'import torch, os; print(os.path.dirname(os.path.dirname(torch.__file__)))' \
        >"$(site_of "$run")/torch.pth"
      if install "$package" "$run" >&2; then
        : >"$place/installed"
      else
        say "$package cannot be installed here"
        continue
      fi
    }
  fi
  say "$package"
  # shellcheck disable=SC2086
  "$run" -W ignore "$here/python_models.py" --cases "$(echo $cases | tr ' ' ,)" \
    --device "${DEVICE:-cpu}" --scale "${SCALE:-.05}" -o "$folder/$package.new" &&
    mv "$folder/$package.new" "$folder/$package.json"
done
"$python" "$here/python_models.py" --table "$folder"/*.json
