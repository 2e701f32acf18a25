"""The blocks of models on meshes, molecules and the globe in other libraries:
the MLPs of edges of physicsnemo and orb-models, which
``dfgnn.accelerate(model)`` makes calls of dfgnn.edge_mlp, and the attention of
anemoi-models, a call of dfgnn.gt_attention; parameters and state_dict stay
theirs."""
