//! Control dependencies: the order of nodes in a subgraph beyond the order that their tensors require.
//!
//! Converters write them into the metadata entry `model_control_dependencies`: version 1, then for each subgraph the
//! number of edges and the two nodes of each edge. Numbers are 7-bit varints; nodes are zigzag-encoded.

use crate::graph::{Model, NodeId};

const ENTRY: &str = "model_control_dependencies";
const VERSION: u32 = 1;

impl Model {
    /// Returns pairs of nodes of which the first must run before the second, from the model's metadata. There are none
    /// where the entry is absent, or does not fit the subgraphs and nodes of the model; then a warning is logged.
    pub fn control_dependencies(&self, subgraph: usize) -> Vec<(NodeId, NodeId)> {
        let Some(bytes) = self.metadata(ENTRY) else { return Vec::new() };
        let nodes = self.subgraph(subgraph).map_or(0, |s| s.nodes().len());
        let found = parse(bytes, self.subgraphs().len(), subgraph);
        // On the CPU, nodes run in the file's order, so a backward edge is invalid.
        match found.filter(|edges| edges.iter().all(|(a, b)| a < b && *b < nodes)) {
            Some(edges) => edges.into_iter().map(|(a, b)| (NodeId(a), NodeId(b))).collect(),
            None => {
                log::warn!("the metadata entry \"{ENTRY}\" does not fit the model and is ignored");
                Vec::new()
            }
        }
    }
}

/// The edges of subgraph `wanted` in an entry for `subgraphs` subgraphs.
fn parse(bytes: &[u8], subgraphs: usize, wanted: usize) -> Option<Vec<(usize, usize)>> {
    let mut rest = bytes.iter().copied();
    if number(&mut rest)? != VERSION || usize::try_from(number(&mut rest)?).ok()? != subgraphs {
        return None;
    }
    let mut edges = Vec::new();
    for index in 0..subgraphs {
        for _ in 0..number(&mut rest)? {
            let edge = (node(&mut rest)?, node(&mut rest)?);
            if index == wanted {
                edges.push(edge);
            }
        }
    }
    rest.next().is_none().then_some(edges)
}

/// Reads a varint; `None` if it is cut off or has more than 32 bits.
fn number(bytes: &mut impl Iterator<Item = u8>) -> Option<u32> {
    let mut value = 0u32;
    for shift in (0..32).step_by(7) {
        let byte = bytes.next()?;
        let bits = u32::from(byte & 0x7f);
        value |= bits.checked_shl(shift).filter(|v| v >> shift == bits)?;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Reads a node: a zigzag-encoded number, which must not be negative.
fn node(bytes: &mut impl Iterator<Item = u8>) -> Option<usize> {
    let value = number(bytes)?;
    (value % 2 == 0).then_some(usize::try_from(value / 2).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_are_read() {
        // Two subgraphs; the second has 0 → 1 and 2 → 300.
        let bytes = [1, 2, 0, 2, 0, 2, 4, 0xd8, 0x04];
        assert_eq!(parse(&bytes, 2, 0), Some(vec![]));
        assert_eq!(parse(&bytes, 2, 1), Some(vec![(0, 1), (2, 300)]));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let bytes = [1, 2, 0, 2, 0, 2, 4, 0xd8, 0x04];
        assert_eq!(parse(&bytes, 1, 0), None, "another number of subgraphs");
        assert_eq!(parse(&[2, 2, 0, 0], 2, 0), None, "another version");
        assert_eq!(parse(&[1, 1, 1, 1, 2], 1, 0), None, "a negative node");
        for len in 0..bytes.len() {
            assert_eq!(parse(&bytes[..len], 2, 1), None, "cut after {len}");
        }
        assert_eq!(parse(&[&bytes[..], &[0]].concat(), 2, 1), None, "too long");
        assert_eq!(parse(&[1, 1, 0xff, 0xff, 0xff, 0xff, 0x7f], 1, 0), None, "too large a number");
        assert_eq!(parse(&[1, 1, 0xff, 0xff, 0xff, 0xff, 0x0f], 1, 0), None, "fewer edges than declared");
    }
}
