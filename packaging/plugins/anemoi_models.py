"""A backend "dfgnn" for the attention of anemoi-models' graph transformers, beside its
"triton" and "pyg": `graph_attention_backend: dfgnn` in the configuration of a model.

    import anemoi_models; anemoi_models.install()

dfgnn.accelerate serves models of the other backends without it, and makes no product of
the features of edges, which a backend is given ready.  Offered to anemoi-models it would
be the two lines of `attention`, called by apply_gt.
"""

import dfgnn


def attention(query, key, value, edges, edge_index):
    """Nodes x heads x features, edges alike, the attention of the nodes that receive."""
    return dfgnn.gt_attention(edge_index, query, key, value, edge_attr=edges)


def install():
    from anemoi.models.layers.block import GraphTransformerBaseBlock as Block
    others, of_others = Block.set_attention_function, Block.apply_gt

    def set_attention_function(self):
        if self.graph_attention_backend == "dfgnn":
            self.conv = attention
        else:
            others(self)

    def apply_gt(self, query, key, value, edges, edge_index, size, **sorting):
        if self.graph_attention_backend == "dfgnn":
            return self.conv(query, key, value, edges, edge_index)
        return of_others(self, query, key, value, edges, edge_index, size, **sorting)

    Block.set_attention_function, Block.apply_gt = set_attention_function, apply_gt
