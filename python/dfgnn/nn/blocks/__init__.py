"""The blocks of models on meshes and molecules in other libraries, physicsnemo
and orb-models, whose MLPs of edges ``dfgnn.accelerate(model)`` makes calls of
dfgnn.edge_mlp: parameters and state_dict stay theirs."""
