// Evaluate a surface that policy.export wrote: predict(surface, x) takes the joint point, context first.
function kernel(node, x, y) {
  if (node.kind === "constant") return node.value;
  if (node.kind === "sum")
    return node.parts.reduce((total, part) => total + kernel(part, x, y), 0);
  if (node.kind === "product")
    return node.parts.reduce((total, part) => total * kernel(part, x, y), 1);
  const [from, to] = node.columns, c = node.centre, s = node.scale;
  if (node.kind === "moved") {
    const move = (point) => point.map((value, i) => i < from || i >= to ? value :
      node.matrix[i - from].reduce((sum, entry, j) => sum + entry * point[from + j],
        node.offset[i - from]));
    return kernel(node.kernel, move(x), move(y));
  }
  if (node.kind === "bent") {
    const bend = (point) => {
      const bent = [...point];
      node.bent.forEach((column, j) =>
        bent[column] = Math.asinh((point[column] - node.middle[j]) / node.knee[j]));
      return bent;
    };
    return kernel(node.kernel, bend(x), bend(y));
  }
  const total = (f) => {
    let sum = 0;
    for (let i = from; i < to; i++) sum += f(x[i], y[i], i - from);
    return sum;
  };
  if (node.kind === "dot") {
    const u = s.map((scale, i) => (x[from + i] - c[i]) / scale);
    const Mu = node.metric.map((row) =>
      row.reduce((sum, value, j) => sum + value * u[j], 0));
    const product = total((a, b, i) => (Mu[i] * (b - c[i])) / s[i]);
    return (product + node.offset) ** node.degree;
  }
  const q = total((a, b, i) => ((a - b) / s[i]) ** 2);
  if (node.kind === "same") return Math.sqrt(q) <= node.within ? 1 : 0;
  if (node.kind === "gaussian") return Math.exp(-q / 2);
  const factor = { "exponential": 1, "matern 3/2": 3, "matern 5/2": 5 }[node.kind];
  const r = Math.sqrt(factor * q);
  const last = 1 + r + (r * r) / 3;
  const rise = { "exponential": 1, "matern 3/2": 1 + r, "matern 5/2": last };
  return rise[node.kind] * Math.exp(-r);
}

function predict(surface, x) {
  const dot = (a, b) => a.reduce((sum, value, i) => sum + value * b[i], 0);
  const k = surface.anchors.map((z) => kernel(surface.kernel, x, z));
  const phi = surface.J.map((row) => dot(row, k));
  const spread = dot(phi, surface.Q.map((row) => dot(row, phi)));
  const variance = kernel(surface.kernel, x, x) - dot(phi, phi) + spread;
  const mean = surface.prior_mean + dot(phi, surface.w);
  return { mean, std: Math.sqrt(Math.max(variance, 0)) };
}
