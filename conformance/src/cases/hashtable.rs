//! HASHTABLE, HASHTABLE_FIND, HASHTABLE_IMPORT, HASHTABLE_SIZE.

use delegraph_core::ops::hashtable::HashtableParams;
use delegraph_core::{ModelBuilder, SubgraphBuilder};

use super::prelude::*;

pub(super) const OP_KINDS: OpKinds =
    &[(OpKind::MOVED, &[Op::HASHTABLE, Op::HASHTABLE_FIND, Op::HASHTABLE_IMPORT, Op::HASHTABLE_SIZE])];

pub(super) fn cases(out: &mut Vec<Case>) {
    for to_string in [false, true] {
        let (key_dtype, value_dtype) = if to_string { (Int64, String) } else { (String, Int64) };
        let mut graph = SubgraphBuilder::new("main");
        let words = ["one", "two", "three"];
        let numbers = [1i64, 2, 3];
        let wanted = graph.input("wanted", key_dtype, [4]);
        let params = HashtableParams::default().table_id(7).key_dtype(key_dtype).value_dtype(value_dtype);
        let table = graph.node(Op::HASHTABLE, params).output("table");
        let (keys, values, default) = if to_string {
            let (keys, values) =
                (graph.constant("keys", [3], &numbers), graph.strings("values", [3], &words));
            (keys, values, graph.strings("default", [1], &["none"]))
        } else {
            let (keys, values) =
                (graph.strings("keys", [3], &words), graph.constant("values", [3], &numbers));
            (keys, values, graph.constant("default", [1], &[-1i64]))
        };
        graph.node(Op::HASHTABLE_IMPORT, Params::None).inputs([table, keys, values]).writes([]);
        let found =
            graph.node(Op::HASHTABLE_FIND, Params::None).inputs([table, wanted, default]).output("found");
        let size = graph.node(Op::HASHTABLE_SIZE, Params::None).inputs([table]).output("size");
        graph.outputs([found, size]);
        let model = ModelBuilder::new().subgraph(graph);
        let data = match to_string {
            true => given(&[4], &[3i64, 9, 1, 3]),
            false => strings(&[4], &["two", "nine", "", "three"]),
        };
        for op in [Op::HASHTABLE, Op::HASHTABLE_FIND, Op::HASHTABLE_IMPORT, Op::HASHTABLE_SIZE] {
            out.push(Case::model(op, model.clone(), [data.clone()]).of(value_dtype).steps(2));
        }
    }
}
