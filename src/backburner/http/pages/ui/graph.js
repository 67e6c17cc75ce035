// Where the steps of a flow are drawn: layers from left to right, large fan-outs as one
// node. It depends only on what the steps are and need, never on their states: nothing
// moves while a flow runs.

export const NODE = { width: 190, height: 46 }
const GAP = { x: 56, y: 14 }
const BEND = 8 // the height that a long edge takes where it passes a layer
const FAN = 8 // so many alike are one node
const MOST_NODES = 160
const MOST_EDGES = 800
const MOST_BENDS = 1000
const BANDS = 40
const SWEEPS = 6

/**
 * Place steps `{name, capability, needs: [{step, otherwise}]}`, each after what it needs.
 *
 * Returns `{width, height, nodes: [{id, steps, x, y}], edges: [{from, to, lax, path}]}`
 * of bounded size: first only steps that are alike share a node, then those of a layer
 * with one capability, then those of many layers.
 */
export function draw(steps) {
  const layers = layered(steps)
  const ways = [byNeeds, byCapability, byBand]
  for (const way of ways) {
    const graph = way(layers)
    if (way === byBand || (graph.nodes.length <= MOST_NODES && graph.edges.length <= MOST_EDGES)) return placed(graph)
  }
}

/** Deal steps out to layers: each one behind the last of what it needs. */
function layered(steps) {
  const depth = new Map()
  const layers = []
  for (const step of steps) {
    let at = 0
    for (const need of step.needs) at = Math.max(at, (depth.get(need.step) ?? -1) + 1)
    depth.set(step.name, at)
    ;(layers[at] ??= []).push(step)
  }
  return layers
}

// --- What shares a node -----------------------------------------------------------------

function byNeeds(layers) {
  return grouped(layers, (step, _layer, nodeOf) => {
    const needs = new Set(step.needs.map(need => nodeOf.get(need.step)?.id))
    return [step.capability, ...[...needs].sort((a, b) => a - b)].join('\n')
  }, FAN)
}

const byCapability = layers => grouped(layers, step => step.capability, 2)

function byBand(layers) {
  const size = Math.ceil(layers.length / BANDS)
  const bands = []
  layers.forEach((layer, at) => (bands[Math.floor(at / size)] ??= []).push(...layer))
  return grouped(bands, () => '', 2)
}

/** Make nodes of each layer: one for `many` or more steps of a key, else one for each step. */
function grouped(layers, key, many) {
  const nodes = []
  const nodeOf = new Map()
  layers.forEach((layer, at) => {
    const groups = new Map()
    for (const step of layer) {
      const name = key(step, at, nodeOf)
      groups.has(name) ? groups.get(name).push(step) : groups.set(name, [step])
    }
    for (const group of groups.values())
      for (const some of group.length >= many ? [group] : group.map(one => [one])) {
        const node = { id: nodes.length, steps: some, layer: at, size: NODE.height }
        nodes.push(node)
        for (const step of some) nodeOf.set(step.name, node)
      }
  })
  const edges = new Map()
  for (const node of nodes)
    for (const step of node.steps)
      for (const need of step.needs) {
        const from = nodeOf.get(need.step)
        if (!from || from === node) continue
        const name = from.id * nodes.length + node.id
        const edge = edges.get(name)
        if (!edge) edges.set(name, { from, to: node, lax: need.otherwise === 'continue' })
        else edge.lax &&= need.otherwise === 'continue'
      }
  return { nodes, edges: [...edges.values()] }
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
    nodes: nodes.map(({ id, steps, x, y }) => ({ id, steps, x, y: y - NODE.height / 2 })),
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
