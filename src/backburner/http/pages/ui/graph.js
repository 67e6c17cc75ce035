// Where the nodes of a flow's graph are drawn: layers from left to right. It depends only
// on what the steps are and need, never on their states: nothing moves while a flow runs.

export const NODE = { width: 190, height: 46 }
const GAP = { x: 56, y: 14 }
const BEND = 8 // the height that a long edge takes where it passes a layer
const MOST_BENDS = 1000
const SWEEPS = 6

/**
 * Place the nodes `{layer}` of a graph, linked by `{source, target, otherwise}`.
 *
 * Returns `{width, height, nodes: [{id, x, y}], edges: [{from, to, lax, path}]}`; the id of
 * a node is its index.
 */
export function draw({ nodes, links }) {
  const boxes = nodes.map(({ layer }, id) => ({ id, layer, size: NODE.height }))
  const edges = links.map(({ source, target, otherwise }) => ({ from: boxes[source], to: boxes[target], lax: otherwise === 'continue' }))
  return placed({ nodes: boxes, edges })
}

// --- Where nodes are --------------------------------------------------------------------

function placed({ nodes, edges }) {
  const rows = []
  for (const node of nodes) (rows[node.layer] ??= []).push(node)
  const lines = withBends(edges, rows)
  const before = new Map()
  const behind = new Map()
  const link = (map, key, value) => (map.has(key) ? map.get(key).push(value) : map.set(key, [value]))
  for (const { points } of lines)
    for (let at = 1; at < points.length; at++) {
      link(before, points[at], points[at - 1])
      link(behind, points[at - 1], points[at])
    }
  rows.forEach(row => row.forEach((node, at) => (node.y = at)))
  // Put each node near those that it is connected with: first in which order, then where.
  for (let sweep = 0; sweep < SWEEPS; sweep++)
    visit(rows, sweep, (row, isForward) => {
      const near = isForward ? before : behind
      for (const node of row) node.desired = mean(near.get(node)) ?? node.y
      row.sort((a, b) => a.desired - b.desired)
      row.forEach((node, at) => (node.y = at))
    })
  for (const row of rows) spread(row, node => node.y * (NODE.height + GAP.y))
  for (let sweep = 0; sweep < SWEEPS; sweep++)
    visit(rows, sweep, (row, isForward) => {
      const near = isForward ? before : behind
      spread(row, node => mean(near.get(node)) ?? node.y)
    })
  const all = rows.flat()
  const top = Math.min(0, ...all.map(node => node.y - node.size / 2))
  for (const node of all) {
    node.x = node.layer * (NODE.width + GAP.x)
    node.y = Math.round(node.y - top)
  }
  return {
    width: rows.length * (NODE.width + GAP.x) - GAP.x,
    height: Math.max(0, ...all.map(node => node.y + node.size / 2)),
    nodes: nodes.map(({ id, x, y }) => ({ id, x, y: y - NODE.height / 2 })),
    edges: lines.map(({ from, to, lax, points }) => ({ from: from.id, to: to.id, lax, path: curve(points) })),
  }
}

/** Have edges over several layers pass a point in each, so that they go around nodes. */
function withBends(edges, rows) {
  let left = MOST_BENDS
  return edges.map(edge => {
    const points = [edge.from]
    const between = edge.to.layer - edge.from.layer - 1
    if (between <= left)
      for (let layer = edge.from.layer + 1; layer < edge.to.layer; layer++) {
        const bend = { layer, size: BEND, isBend: true }
        rows[layer].push(bend)
        points.push(bend)
        left--
      }
    return { ...edge, points: [...points, edge.to] }
  })
}

function visit(rows, sweep, work) {
  const isForward = sweep % 2 === 0
  for (let at = 0; at < rows.length; at++) work(rows[isForward ? at : rows.length - 1 - at], isForward)
}

const mean = nodes => nodes && nodes.reduce((sum, node) => sum + node.y, 0) / nodes.length

/** Place a row as near as possible to the desired positions of its nodes, without overlap. */
function spread(row, desired) {
  let offset = 0
  const blocks = []
  const offsets = row.map((node, at) => {
    if (at) offset += (row[at - 1].size + node.size) / 2 + GAP.y
    blocks.push({ sum: desired(node) - offset, count: 1 })
    // Blocks that would overlap become one, at the mean of their desired positions.
    while (blocks.length > 1 && blocks.at(-2).sum / blocks.at(-2).count > blocks.at(-1).sum / blocks.at(-1).count) {
      const last = blocks.pop()
      blocks.at(-1).sum += last.sum
      blocks.at(-1).count += last.count
    }
    return offset
  })
  let at = 0
  for (const { sum, count } of blocks)
    for (let n = 0; n < count; n++, at++) row[at].y = sum / count + offsets[at]
}

function curve(points) {
  const [first, ...rest] = points
  let x = first.x + NODE.width
  let y = first.y
  let path = `M${x} ${y}`
  for (const point of rest) {
    const half = (x + point.x) / 2
    path += `C${half} ${y} ${half} ${point.y} ${point.x} ${point.y}`
    if (point.isBend) path += `H${point.x + NODE.width}`
    x = point.x + NODE.width
    y = point.y
  }
  return path
}
