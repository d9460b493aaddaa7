//! Places the vertices of a directed acyclic graph in layers. Longest paths determine the layers, barycentres the order
//! in each, and least squares under minimum distances the positions.

/// The distance between two boxes of a layer.
const GAP: f64 = 18.0;

/// The width of an edge in a layer that it crosses.
const LANE: f64 = 10.0;

/// The maximum number of lanes of edges through the layers, shorter edges first; other edges are straight, behind
/// boxes.
const MAX_LANES: usize = 40_000;

/// A vertex to place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Vertex {
    pub(super) width: f64,
    /// Whether the vertex is placed directly above its successor, even if an earlier layer is possible.
    pub(super) late: bool,
}

/// An edge, from a vertex to one with a higher number.
#[derive(Debug, Clone, Copy)]
pub(super) struct Edge {
    pub(super) from: usize,
    pub(super) to: usize,
    /// The importance of a straight edge: 1, or less for minor edges.
    pub(super) weight: f64,
}

/// All positions: `x` in the unit of the widths, from 0 to `width`; `y` in layers.
#[derive(Debug, Default)]
pub(super) struct Layout {
    /// Per vertex, the middle of its box and its layer.
    pub(super) vertices: Vec<(f64, usize)>,
    /// Per edge, the middle of its lane in each layer that it crosses, in order.
    pub(super) edges: Vec<Vec<(f64, usize)>>,
    pub(super) width: f64,
    pub(super) layers: usize,
}

impl Layout {
    /// Places vertices.
    pub(super) fn new(vertices: &[Vertex], edges: &[Edge]) -> Self {
        let layer_of = layers(vertices, edges);
        let (mut net, lanes) = Net::new(vertices, edges, &layer_of);
        net.order();
        net.place();
        let left = net.items.iter().map(|i| i.x - i.half).fold(f64::INFINITY, f64::min);
        let right = net.items.iter().map(|i| i.x + i.half).fold(f64::NEG_INFINITY, f64::max);
        let place = |i: usize| (net.items[i].x - left, net.items[i].layer);
        Layout {
            vertices: (0..vertices.len()).map(place).collect(),
            edges: lanes.into_iter().map(|lanes| lanes.map(place).collect()).collect(),
            width: if net.items.is_empty() { 0.0 } else { right - left },
            layers: net.layers.len(),
        }
    }
}

/// The layer of each vertex.
fn layers(vertices: &[Vertex], edges: &[Edge]) -> Vec<usize> {
    let mut before = vec![Vec::new(); vertices.len()];
    let mut after = vec![Vec::new(); vertices.len()];
    for &Edge { from, to, .. } in edges {
        before[to].push(from);
        after[from].push(to);
    }
    let mut layer_of: Vec<usize> = vec![0; vertices.len()];
    for v in 0..vertices.len() {
        layer_of[v] = before[v].iter().map(|&u| layer_of[u] + 1).max().unwrap_or(0);
    }
    // Moves a vertex down if that shortens more edges than it lengthens.
    for v in (0..vertices.len()).rev() {
        if vertices[v].late || after[v].len() > before[v].len() {
            let next = after[v].iter().map(|&w| layer_of[w]).min();
            layer_of[v] = next.map_or(layer_of[v], |next| next.saturating_sub(1).max(layer_of[v]));
        }
    }
    layer_of
}

/// A vertex, or an edge in a layer that it crosses.
struct Item {
    layer: usize,
    half: f64,
    x: f64,
    /// The importance of a straight line through it.
    stiffness: f64,
    /// Connected boxes in the layer before, with the weight of the connection.
    before: Vec<(usize, f64)>,
    after: Vec<(usize, f64)>,
}

/// Items and their connections, each from one layer to the next.
struct Net {
    items: Vec<Item>,
    layers: Vec<Vec<usize>>,
}

impl Net {
    /// The net, and for each edge its lanes.
    fn new(vertices: &[Vertex], edges: &[Edge], layer_of: &[usize]) -> (Self, Vec<std::ops::Range<usize>>) {
        let item = |layer, width: f64, stiffness| {
            let (before, after) = Default::default();
            Item { layer, half: width / 2.0, x: 0.0, stiffness, before, after }
        };
        let boxes = vertices.iter().zip(layer_of);
        let mut items: Vec<Item> = boxes.map(|(v, &layer)| item(layer, v.width + GAP, 1.0)).collect();
        let span = |edge: &Edge| layer_of[edge.to] - layer_of[edge.from];
        let mut by_length: Vec<usize> = (0..edges.len()).collect();
        by_length.sort_by_key(|&e| span(&edges[e]));
        let mut lanes = vec![0..0; edges.len()];
        for e in by_length {
            let Edge { from, to, weight } = edges[e];
            let start = items.len();
            if start + span(&edges[e]) > vertices.len() + MAX_LANES {
                break;
            }
            items.extend((layer_of[from] + 1..layer_of[to]).map(|layer| item(layer, LANE, 4.0)));
            lanes[e] = start..items.len();
            let stops: Vec<usize> = [from].into_iter().chain(lanes[e].clone()).chain([to]).collect();
            for pair in stops.windows(2) {
                items[pair[0]].after.push((pair[1], weight));
                items[pair[1]].before.push((pair[0], weight));
            }
        }
        let count = items.iter().map(|i| i.layer + 1).max().unwrap_or(0);
        let mut layers = vec![Vec::new(); count];
        items.iter().enumerate().for_each(|(i, item)| layers[item.layer].push(i));
        (Net { items, layers }, lanes)
    }

    /// Orders each layer so that few edges cross.
    fn order(&mut self) {
        let mut position = vec![0; self.items.len()];
        let number = |layers: &[Vec<usize>], position: &mut [usize]| {
            layers.iter().for_each(|layer| layer.iter().enumerate().for_each(|(p, &i)| position[i] = p));
        };
        number(&self.layers, &mut position);
        let mut best = (self.crossings(&position), self.layers.clone());
        for round in 0..16 {
            if best.0 == 0 {
                break;
            }
            let down = round % 2 == 0;
            let count = self.layers.len();
            for step in 0..count {
                let layer = &mut self.layers[if down { step } else { count - 1 - step }];
                let key = |i: usize| {
                    let item = &self.items[i];
                    let next = if down { &item.before } else { &item.after };
                    let sum: usize = next.iter().map(|&(n, _)| position[n]).sum();
                    if next.is_empty() { position[i] as f64 } else { sum as f64 / next.len() as f64 }
                };
                layer.sort_by(|&a, &b| key(a).total_cmp(&key(b)));
                layer.iter().enumerate().for_each(|(p, &i)| position[i] = p);
            }
            let crossings = self.crossings(&position);
            if crossings < best.0 {
                best = (crossings, self.layers.clone());
            }
        }
        self.layers = best.1;
    }

    /// Returns the number of crossing pairs of edges, with each item at its position in its layer.
    fn crossings(&self, position: &[usize]) -> u64 {
        let mut crossings = 0;
        for pair in self.layers.windows(2) {
            // The number of edges that end at each position, as sums over ranges (a Fenwick tree).
            let mut ends = vec![0u64; pair[1].len() + 1];
            let mut count = 0;
            for &i in &pair[0] {
                let mut targets: Vec<usize> = self.items[i].after.iter().map(|&(n, _)| position[n]).collect();
                targets.sort_unstable();
                for &target in &targets {
                    let mut at = target + 1;
                    let mut before = 0;
                    while at > 0 {
                        before += ends[at];
                        at &= at - 1;
                    }
                    crossings += count - before;
                }
                for target in targets {
                    count += 1;
                    let mut at = target + 1;
                    while at < ends.len() {
                        ends[at] += 1;
                        at += at & at.wrapping_neg();
                    }
                }
            }
        }
        crossings
    }

    /// Assigns each item a position: the middle of its neighbours in other layers, as far as its layer allows.
    fn place(&mut self) {
        for layer in &self.layers {
            let mut x = 0.0;
            for &i in layer {
                x += self.items[i].half;
                self.items[i].x = x;
                x += self.items[i].half;
            }
        }
        let count = self.layers.len();
        for round in 0..24 {
            let (up, both) = (round % 2 == 1, round >= 12);
            for step in 0..count {
                let layer = if up { count - 1 - step } else { step };
                self.place_layer(layer, both || !up, both || up);
            }
        }
    }

    /// Least squares: minimizes the sum of squared distances to the wanted places under the order and the minimum
    /// distances. Without the widths this is isotonic regression, by pooling adjacent violators.
    fn place_layer(&mut self, layer: usize, before: bool, after: bool) {
        // Sum of weighted places, weight, number of items.
        let mut pools: Vec<(f64, f64, usize)> = Vec::new();
        let mut offset = 0.0;
        let mut offsets = Vec::with_capacity(self.layers[layer].len());
        for &i in &self.layers[layer] {
            let item = &self.items[i];
            offset += item.half;
            offsets.push(offset);
            let (mut sum, mut weight) = (0.0, 0.0);
            let sides = [(before, &item.before), (after, &item.after)];
            for &(n, edge) in sides.into_iter().filter(|(wanted, _)| *wanted).flat_map(|(_, side)| side) {
                let stiffness = edge * item.stiffness * self.items[n].stiffness;
                sum += stiffness * self.items[n].x;
                weight += stiffness;
            }
            if weight == 0.0 {
                (sum, weight) = (0.01 * item.x, 0.01);
            }
            pools.push((sum - weight * offset, weight, 1));
            offset += item.half;
            while let [.., (sum, weight, count), (next, next_weight, next_count)] = pools[..] {
                if sum / weight <= next / next_weight {
                    break;
                }
                pools.truncate(pools.len() - 2);
                pools.push((sum + next, weight + next_weight, count + next_count));
            }
        }
        let places = pools.iter().flat_map(|(sum, weight, count)| std::iter::repeat_n(sum / weight, *count));
        for ((&i, place), offset) in self.layers[layer].iter().zip(places).zip(offsets) {
            self.items[i].x = place + offset;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn even(edges: &[(usize, usize)]) -> Vec<Edge> {
        edges.iter().map(|&(from, to)| Edge { from, to, weight: 1.0 }).collect()
    }

    fn place(vertices: usize, edges: &[(usize, usize)]) -> Layout {
        let edges = &even(edges);
        let vertices: Vec<Vertex> =
            (0..vertices).map(|i| Vertex { width: 60.0 + (i % 7) as f64 * 10.0, late: false }).collect();
        let layout = Layout::new(&vertices, edges);
        check(&vertices, edges, &layout);
        layout
    }

    /// Checks properties of every graph: boxes and lanes keep their distance, and edges point down.
    fn check(vertices: &[Vertex], edges: &[Edge], layout: &Layout) {
        let mut spans: Vec<(usize, f64, f64)> = Vec::new();
        for (v, &(x, layer)) in vertices.iter().zip(&layout.vertices) {
            spans.push((layer, x - v.width / 2.0, x + v.width / 2.0));
        }
        for (Edge { from, to, .. }, lanes) in edges.iter().zip(&layout.edges) {
            let (first, last) = (layout.vertices[*from].1, layout.vertices[*to].1);
            assert!(first < last, "{from} → {to}");
            let layers: Vec<usize> = lanes.iter().map(|(_, layer)| *layer).collect();
            assert!(layers.is_empty() || layers.iter().copied().eq(first + 1..last));
            spans.extend(lanes.iter().map(|&(x, layer)| (layer, x - 1.0, x + 1.0)));
        }
        spans.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        for pair in spans.windows(2) {
            assert!(pair[0].0 < pair[1].0 || pair[0].2 < pair[1].1, "{pair:?}");
        }
        assert!(
            spans
                .iter()
                .all(|&(layer, left, right)| layer < layout.layers && left >= 0.0 && right <= layout.width)
        );
    }

    #[test]
    fn a_chain_is_straight() {
        let layout = place(5, &[(0, 1), (1, 2), (2, 3), (3, 4)]);
        assert_eq!(layout.layers, 5);
        for (x, _) in &layout.vertices {
            approx::assert_abs_diff_eq!(*x, layout.vertices[0].0, epsilon = 1e-6);
        }
    }

    #[test]
    fn edges_that_need_not_cross_do_not() {
        // Two chains, numbered crosswise.
        let layout = place(6, &[(0, 3), (1, 2), (2, 5), (3, 4)]);
        let x = |v: usize| layout.vertices[v].0;
        assert_eq!(x(0) < x(1), x(3) < x(2));
        assert_eq!(x(3) < x(2), x(4) < x(5));
        // A long edge runs next to the boxes of a chain.
        let layout = place(5, &[(0, 1), (1, 2), (2, 3), (3, 4), (0, 4)]);
        assert_eq!(layout.edges[4].len(), 3);
    }

    #[test]
    fn light_edges_leave_a_chain_straight() {
        let vertices = [Vertex { width: 90.0, late: false }; 6];
        let edges = [(0, 1, 1.0), (1, 4, 1.0), (2, 4, 0.01), (3, 4, 0.01), (4, 5, 1.0)];
        let edges = edges.map(|(from, to, weight)| Edge { from, to, weight });
        let layout = Layout::new(&vertices, &edges);
        check(&vertices, &edges, &layout);
        let x = |v: usize| layout.vertices[v].0;
        assert!(
            [1, 4, 5].iter().all(|&v| approx::abs_diff_eq!(x(v), x(0), epsilon = 9.0)),
            "{:?}",
            layout.vertices
        );
        assert!([2, 3].iter().all(|&v| (x(v) - x(4)).abs() > 60.0), "{:?}", layout.vertices);
    }

    #[test]
    fn late_vertices_are_right_above_what_they_lead_to() {
        let vertices: Vec<Vertex> = (0..6).map(|i| Vertex { width: 50.0, late: i == 4 }).collect();
        // 3 → 4 → 5 are weights that are computed first.
        let edges = even(&[(0, 1), (1, 2), (2, 5), (3, 4), (4, 5)]);
        let layout = Layout::new(&vertices, &edges);
        check(&vertices, &edges, &layout);
        let layers: Vec<usize> = layout.vertices.iter().map(|v| v.1).collect();
        assert_eq!(layers, [0, 1, 2, 1, 2, 3]);
    }

    #[test]
    fn graphs_of_any_form_keep_their_distances() {
        assert_eq!(place(0, &[]).layers, 0);
        assert_eq!(place(3, &[]).layers, 1);
        for seed in 1..20u64 {
            let mut state = seed;
            let mut random = |below: usize| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) as usize % below
            };
            let count = 2 + random(80);
            let edges: Vec<(usize, usize)> =
                (1..count).flat_map(|to| [(random(to), to), (random(to), to)]).collect();
            place(count, &edges);
        }
    }

    #[test]
    fn lanes_are_bounded() {
        let count = 1000;
        let edges: Vec<_> = (1..count).flat_map(|v| [(v - 1, v), (0, v), (v / 2, v)]).collect();
        let layout = place(count, &edges);
        let lanes: usize = layout.edges.iter().map(Vec::len).sum();
        assert!(lanes <= MAX_LANES && lanes > MAX_LANES / 2, "{lanes}");
    }
}
