/* program_texts.h - programs of many shapes, for tests that run them */
#ifndef DFGNN_TESTS_PROGRAM_TEXTS_H
#define DFGNN_TESTS_PROGRAM_TEXTS_H

static const char *const programs[] = {
    /* attention of two heads with edge rows and a bias */
    "dst q[2,8]; src k[2,8], v[2,8]; edge e[2,8], b[2,1]\n"
    "score = sum(q * (k + e)) * 0.35 + b\n"
    "out = sum_in(softmax_in(score) * (v + e))",
    /* GATv2 */
    "dst x[2,5]; src y[2,5]; param a[2,5]\n"
    "out = sum_in(softmax_in(dot(a, leaky_relu(x + y, .2))) * y)",
    /* cosine */
    "dst q[6]; src k[6], v[6]\n"
    "c = dot(q, k) / sqrt(dot(q, q) * dot(k, k) + 0.1)\n"
    "out = sum_in(softmax_in(c) * v)",
    /* a softmax of each channel, out-edges */
    "dst q[7]; src k[7]; edge e[7]\n"
    "return out = sum_out(softmax_out(q - k + e) * (q + e)),\n"
    "  lse = logsumexp_out(q - k)",
    /* CFConv with Gaussians and a linear map of distances */
    "dst t[3]; src u[3], x[4]; param g[5], W[4,5], c[4]\n"
    "d = sqrt(sum((t - u) ** 2) + 0.01)\n"
    "f = linear(exp(-square(d - g)), W, c)\n"
    "return out = sum_in(x * f), basis = f, total = sum_all(f)",
    /* EGNN's coordinates and a cat of ends and edge */
    "dst x[3], h[4]; src y[3], g[4]; edge r[2]; param W[3,10], c[3]\n"
    "m = silu(linear(cat(h, g, r), W, c))\n"
    "return out = mean_in((x - y) * m[0]), m = tanh(m)[1:3], z = mean_out(m)",
    /* gates */
    "dst q[9]; src k[9], v[9]; edge w\n"
    "return out = sum_in(sigmoid(q + k) * tanh(v * w)) + elu(q),\n"
    "  back = sum_out(gelu(w) * softplus(q)) * degree(src)",
    /* extremes */
    "dst q[5]; src k[5]; edge e[5]\n"
    "return high = max_in(tanh(k - q)), low = min_out(q * e)",
    /* FeaSt: a softmax over heads of an edge */
    "dst s[4,1]; src r[4,1], x[4,6]\n"
    "out = sum_in(softmax(s - r, -2) * x)",
    /* dropout, where, clamp, comparisons, reshape */
    "dst q[6]; src k[2,3]; edge w\n"
    "x = where(w < 0.2, reshape(q, [2,3]), clamp(k, -0.5, 0.4))\n"
    "out = sum_in(dropout(x * w, 0.3)) + max_in(w) * (k > 0)[0:1] * 0 + 1",
    /* an edge matrix, logs, and values of parameters alone */
    "src x[3]; edge W[4,3]; param p[4]\n"
    "y = linear(x, W) * exp(p)\n"
    "return out = sum_in(y), q = sum_all(log1p(y * y)) * p, r = sin(p) + "
    "cos(p)",
    /* sums that go along with a softmax, and its weights */
    "dst q[2,6]; src k[2,6], v[2,6]; edge e[2,1]\n"
    "w = softmax_in(sum(q * k))\n"
    "return out = sum_in(dropout(w, 0.2) * sigmoid(e) * v), w = w,\n"
    "  gate = sum_in(w * e)",
    /* reductions of reductions, both ways */
    "dst q[3]; src k[3]; edge w\n"
    "a = sum_in(w * k); b = sum_out(w * a * q); c = max_in(b + w)\n"
    "return out = c - mean_in(erf(w) * c), n = b * abs(k)",
    /* keys, scores and values by relation, as RGAT and HGT have them */
    "dst q[2,4]; src k[2,6]; rel a[2,4], W[2,4,6], p[2,1]\n"
    "y = reshape(linear(reshape(k, [2,1,6]), W), [2,4])\n"
    "score = sum(q * a * y) * p\n"
    "return out = sum_in(softmax_in(score) * tanh(y)),\n"
    "  spread = sum_rel(score) * exp(p)",
    /* reductions over the edges of a relation */
    "dst q[5]; src k[5]; rel r[5]; edge w\n"
    "m = tanh(k * r + q) * w\n"
    "return out = sum_in(m - mean_rel(m)),\n"
    "  back = sum_out(softmax_rel(m) * max_rel(m - q)),\n"
    "  share = degree(rel) * logsumexp_rel(w)",
    /* angles and exchanged axes */
    "dst x[2,3]; src y[2,3]; edge a[3,2]\n"
    "t = transpose(a, -1, -2) * y\n"
    "return out = sum_in(atan2(x + 2, t) * y[0, :]),\n"
    "  turned = sum_out(transpose(x - y, -2, -1)[1:3, :])",
    /* scores far from 0, of which exp() is 0 or infinite */
    "dst q[4]; src k[4]; edge e\n"
    "score = sum(q * k)\n"
    "return out = sum_in(softmax_in(score - 800) * k),\n"
    "  back = sum_out(softmax_out(score + 900) * e * q),\n"
    "  size = logsumexp_in(where(e < 0, -1e30, score - 800))",
    /* a message whose gradient all three tensors have, at their rows */
    "dst a[2,6]; src b[2,6]; edge e[2,6]\n"
    "m = silu(e + a + b)\n"
    "return m = m, out = sum_in(m), back = sum_out(m)"};
enum { PROGRAMS = sizeof programs / sizeof *programs };

static const char *const dropouts[] = {
    /* two, of rows and of numbers */
    "src v[6]; edge w\n"
    "out = sum_in(dropout(v * w, 0.5)) + sum_in(dropout(w, 0.3))",
    /* GT */
    "dst q[2,8]; src k[2,8], v[2,8]\n"
    "out = sum_in(dropout(softmax_in(sum(q * k) * 0.35), 0.4) * v)",
    /* GT, whose dropout is the second of the text */
    "dst q[2,8]; src k[2,8], v[2,8]; edge w\n"
    "unread = dropout(w, 0.1)\n"
    "out = sum_in(dropout(softmax_in(sum(q * k) * 0.35), 0.4) * v)"};
enum { DROPOUTS = sizeof dropouts / sizeof *dropouts };

#endif
