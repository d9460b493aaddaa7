//! Mutations of models: of the tree of a model's tables, which stays readable, and of the bytes of a file.

use delegraph_conformance::seeded::SplitMix64;
use delegraph_core::TensorType;
use serde_json::{Value, json};

use crate::tree;

/// The largest number of values of a tree. Larger trees would take too long.
const MAX_VALUES: usize = 1 << 16;

/// Extreme sizes and indices.
const INTEGERS: &[i64] = &[
    0,
    1,
    2,
    3,
    4,
    7,
    8,
    16,
    17,
    64,
    255,
    1 << 12,
    1 << 16,
    1 << 20,
    1 << 24,
    1 << 28,
    1 << 30,
    (1 << 30) + 1,
    i32::MAX as i64,
    i32::MIN as i64,
    -1,
    -2,
    -128,
    i64::MAX,
    i64::MIN,
];

/// Random choices.
pub struct Dice(SplitMix64);

impl Dice {
    /// Creates the choices of mutant `index` of `seed`.
    pub fn new(seed: u64, index: u64) -> Self {
        let start = SplitMix64::new(seed).draw() ^ index;
        Dice(SplitMix64::new(start).for_input(1))
    }

    /// Returns a number from 0 to `n - 1`; 0 if `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        (self.0.draw() % n.max(1) as u64) as usize
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        from.get(self.below(from.len()))
    }

    fn integer(&mut self) -> i64 {
        match self.below(3) {
            0 => self.below(6) as i64 - 1,
            _ => self.pick(INTEGERS).copied().unwrap_or(0),
        }
    }
}

/// Returns the tree of a valid model, unless it is too large to mutate.
pub fn read(file: &[u8]) -> Option<Value> {
    delegraph_core::Model::from_bytes(delegraph_core::ModelBytes::new(file.to_vec())).ok()?;
    tree::read_within(file, MAX_VALUES)
}

/// Returns a mutant of `file`: a few changes of its tree, which may take nodes from `other`, or of its bytes.
pub fn mutant(file: &[u8], other: Option<&[u8]>, dice: &mut Dice) -> Vec<u8> {
    if !dice.chance(15)
        && let Some(mut model) = read(file)
    {
        let other = other.and_then(read);
        for _ in 0..=dice.below(4) {
            change(&mut model, other.as_ref(), dice);
        }
        return tree::write(&model);
    }
    damaged(file, dice)
}

/// Returns the file with some of its bytes changed.
pub fn damaged(file: &[u8], dice: &mut Dice) -> Vec<u8> {
    let mut bytes = file.to_vec();
    if bytes.is_empty() {
        return bytes;
    }
    for _ in 0..=dice.below(3) {
        let at = dice.below(bytes.len());
        match dice.below(6) {
            0 => bytes.truncate(at + 1),
            1 => bytes[at] ^= 1 << dice.below(8),
            2 => {
                let value = dice.integer() as u32;
                let end = (at + 4).min(bytes.len());
                bytes[at..end].copy_from_slice(&value.to_le_bytes()[..end - at]);
            }
            3 => {
                let other = dice.below(bytes.len());
                let len = (1 + dice.below(32)).min(bytes.len() - at.max(other));
                bytes.copy_within(at..at + len, other);
            }
            _ => bytes[at] = dice.below(256) as u8,
        }
    }
    bytes
}

/// Makes one change to a model.
pub fn change(model: &mut Value, other: Option<&Value>, dice: &mut Dice) {
    match dice.below(18) {
        0..=2 => set_number(model, dice),
        16 => empty_and_giant(model, dice),
        17 => repeat_node(model, dice),
        3 | 4 => resize(model, dice),
        5 => retype(model, dice),
        6 | 7 => rewire(model, dice),
        8 => reconstant(model, dice),
        9 => rebytes(model, dice),
        10 => relist(model, dice),
        11 => reop(model, dice),
        12 => rename(model, dice),
        13 => call(model, dice),
        _ => match other {
            Some(other) => graft(model, other, dice),
            None => set_number(model, dice),
        },
    }
}

/// Changes one number, present or absent.
fn set_number(model: &mut Value, dice: &mut Dice) {
    let numbers = tree::numbers(model);
    let Some((path, value)) = dice.pick(&numbers) else { return };
    let new = match value.as_i64() {
        Some(v) => match dice.below(4) {
            0 => json!(v.saturating_add(1)),
            1 => json!(v.saturating_sub(1)),
            _ => json!(dice.integer()),
        },
        None if value.is_boolean() => json!(dice.below(3)),
        None => {
            let floats = [
                json!("NaN"),
                json!("inf"),
                json!("-inf"),
                json!(-1.0),
                json!(0.0),
                json!(1e-40),
                json!(3e38),
            ];
            dice.pick(&floats).cloned().unwrap_or_default()
        }
    };
    // Absent fields of lists cannot be set.
    if model.pointer(path.rsplit_once('/').map_or("", |(parent, _)| parent)).is_some() {
        tree::set(model, path, new);
        // With another code, a union has another table.
        if let Some(union) = path.strip_suffix("_type").filter(|path| model.pointer(path).is_some()) {
            tree::set(model, union, json!({}));
        }
    }
}

/// Changes the shape of a tensor, or all extents of one size.
fn resize(model: &mut Value, dice: &mut Dice) {
    let Some(graph) = subgraph(model, dice) else { return };
    let new = if dice.chance(70) { dice.below(9) as i64 } else { dice.integer() };
    let Some(tensors) = list(graph, "tensors") else { return };
    let at = dice.below(tensors.len());
    let Some(shape) = tensors.get_mut(at).and_then(|t| list(t, "shape")) else { return };
    let dim = dice.below(shape.len());
    match dice.below(5) {
        0 => shape.insert(dim, json!(new)),
        1 if !shape.is_empty() => drop(shape.remove(dim)),
        2 => {
            if let Some(extent) = shape.get_mut(dim) {
                *extent = json!(new);
            }
        }
        _ => {
            let Some(old) = shape.get(dim).cloned() else { return };
            for tensor in tensors {
                for extent in list(tensor, "shape").into_iter().flatten().filter(|e| **e == old) {
                    *extent = json!(new);
                }
            }
        }
    }
}

/// Sets all extents of one size to zero and all of another size to a very large number. Such tensors have no elements
/// but long loops.
fn empty_and_giant(model: &mut Value, dice: &mut Dice) {
    let giants = [1 << 16, 46_341, 1 << 24, 1 << 30, i64::from(i32::MAX)];
    let giant = dice.pick(&giants).copied().unwrap_or(1 << 30);
    let Some(graph) = subgraph(model, dice) else { return };
    let Some(tensors) = list(graph, "tensors") else { return };
    let mut sizes: Vec<Value> =
        tensors.iter_mut().filter_map(|t| list(t, "shape")).flatten().map(|e| e.clone()).collect();
    sizes.dedup();
    let Some(none) = dice.pick(&sizes).cloned() else { return };
    // Sometimes every other extent is very large.
    let many = if dice.chance(20) { None } else { dice.pick(&sizes).cloned() };
    for extent in tensors.iter_mut().filter_map(|t| list(t, "shape")).flatten() {
        if *extent == none {
            *extent = json!(0);
        } else if many.as_ref().is_none_or(|many| extent == many) {
            *extent = json!(giant);
        }
    }
}

/// Repeats a node with new outputs, so that many nodes read and pack the same constants.
fn repeat_node(model: &mut Value, dice: &mut Dice) {
    let times = dice.pick(&[10, 100, 2000]).copied().unwrap_or(10);
    let Some(graph) = subgraph(model, dice) else { return };
    let Some(operators) = list(graph, "operators") else { return };
    let at = dice.below(operators.len());
    let Some(node) = operators.get(at).cloned() else { return };
    let outputs: Vec<usize> = node
        .get("outputs")
        .and_then(Value::as_array)
        .map_or_else(Vec::new, |ids| ids.iter().filter_map(Value::as_u64).map(|id| id as usize).collect());
    let Some(tensors) = list(graph, "tensors") else { return };
    let originals: Vec<Value> = outputs.iter().filter_map(|&id| tensors.get(id).cloned()).collect();
    let first = tensors.len();
    let count = originals.len();
    for _ in 0..times {
        tensors.extend(originals.iter().cloned());
    }
    let Some(operators) = list(graph, "operators") else { return };
    for copy in 0..times {
        let mut node = node.clone();
        node["outputs"] = (0..count).map(|i| json!(first + copy * count + i)).collect();
        operators.push(node);
    }
}

/// Changes the type of a tensor, or of all tensors of a type.
fn retype(model: &mut Value, dice: &mut Dice) {
    let new = json!(dice.below(TensorType::ALL.len() + 1));
    let all = dice.chance(50);
    let Some(graph) = subgraph(model, dice) else { return };
    let Some(tensors) = list(graph, "tensors") else { return };
    let at = dice.below(tensors.len());
    let ty = |t: &Value| t.get("type").cloned().unwrap_or(json!(0));
    let Some(old) = tensors.get(at).map(ty) else { return };
    for (_, tensor) in tensors.iter_mut().enumerate().filter(|(i, t)| *i == at || (all && ty(t) == old)) {
        if let Some(tensor) = tensor.as_object_mut() {
            tensor.insert("type".into(), new.clone());
        }
    }
}

/// Changes an input or an output of a node or of a subgraph.
fn rewire(model: &mut Value, dice: &mut Dice) {
    let Some(graph) = subgraph(model, dice) else { return };
    let tensors = graph.get("tensors").and_then(Value::as_array).map_or(0, Vec::len);
    let operators = graph.get("operators").and_then(Value::as_array).map_or(0, Vec::len);
    let side = if dice.chance(70) { "inputs" } else { "outputs" };
    let holder = match dice.below(operators + 1) {
        0 => Some(graph),
        n => list(graph, "operators").and_then(|list| list.get_mut(n - 1)),
    };
    let Some(ids) = holder.and_then(|holder| list(holder, side)) else { return };
    let at = dice.below(ids.len());
    let id = if dice.chance(8) { json!(-1) } else { json!(dice.below(tensors)) };
    match dice.below(4) {
        0 => ids.insert(at, id),
        1 if !ids.is_empty() => drop(ids.remove(at)),
        2 if ids.len() > 1 => ids.swap(0, at),
        _ => match ids.get_mut(at) {
            Some(old) => *old = id,
            None => ids.push(id),
        },
    }
}

/// Makes a tensor a constant with other data, an input, a variable, or a computed tensor.
fn reconstant(model: &mut Value, dice: &mut Dice) {
    let small = dice.chance(60);
    let data: Vec<u8> = (0..dice.below(if small { 5 } else { 33 }))
        .flat_map(|_| (dice.integer() as i32).to_le_bytes())
        .collect();
    let Some(buffers) = list(model, "buffers") else { return };
    let kind = dice.below(4);
    let buffer = match kind {
        0 | 1 => {
            buffers.push(json!({ "data": data }));
            buffers.len() - 1
        }
        _ => 0,
    };
    let Some(graph) = subgraph(model, dice) else { return };
    let Some(tensors) = list(graph, "tensors") else { return };
    let at = dice.below(tensors.len());
    let Some(tensor) = tensors.get_mut(at).and_then(Value::as_object_mut) else { return };
    tensor.insert("buffer".into(), json!(buffer));
    match kind {
        // Plausible numbers: shapes, axes, sizes.
        0 => {
            tensor.insert("type".into(), json!(2));
            tensor.insert("shape".into(), json!([data.len() / 4]));
        }
        1 => {}
        2 => {
            if let Some(inputs) = list(graph, "inputs") {
                inputs.push(json!(at));
            }
        }
        _ => drop(tensor.insert("is_variable".into(), json!(true))),
    }
}

/// Changes a constant, as 32-bit integers or as bytes.
fn rebytes(model: &mut Value, dice: &mut Dice) {
    let Some(buffers) = list(model, "buffers") else { return };
    let full: Vec<usize> = (0..buffers.len()).filter(|&i| has_data(&buffers[i])).collect();
    let Some(&at) = dice.pick(&full) else { return };
    let Some(text) = buffers[at].get("data").and_then(Value::as_str) else { return };
    let mut bytes: Vec<u8> = text.chars().map(|c| c as u8).collect();
    let position = dice.below(bytes.len());
    match dice.below(4) {
        0 => {
            let word = position / 4 * 4;
            let value = (dice.integer() as i32).to_le_bytes();
            bytes.iter_mut().skip(word).zip(value).for_each(|(byte, new)| *byte = new);
        }
        1 => {
            let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, 1e-45, f32::MAX];
            let value = dice.pick(&special).copied().unwrap_or(0.0).to_le_bytes();
            bytes.iter_mut().skip(position / 4 * 4).zip(value).for_each(|(byte, new)| *byte = new);
        }
        2 => bytes.truncate(position),
        _ => bytes[position] = dice.below(256) as u8,
    }
    let text: String = bytes.into_iter().map(char::from).collect();
    tree::set(model, &format!("/buffers/{at}/data"), text);
}

fn has_data(buffer: &Value) -> bool {
    buffer.get("data").and_then(Value::as_str).is_some_and(|data| !data.is_empty())
}

/// Repeats, removes or swaps elements of a list of tables.
fn relist(model: &mut Value, dice: &mut Dice) {
    let choice = dice.below(7);
    let names = ["operators", "operators", "tensors", "inputs", "outputs"];
    let holder = match names.get(choice) {
        Some(name) => subgraph(model, dice).and_then(|graph| list(graph, name)),
        None if choice == 5 => list(model, "subgraphs"),
        None => list(model, "signature_defs"),
    };
    let Some(items) = holder.filter(|items| !items.is_empty()) else { return };
    let (at, to) = (dice.below(items.len()), dice.below(items.len()));
    match dice.below(4) {
        0 => drop(items.remove(at)),
        1 => items.swap(at, to),
        2 => items.insert(to, items[at].clone()),
        _ => {
            let repeated = items[at].clone();
            let times = if dice.chance(20) { 200 } else { 1 + dice.below(8) };
            items.extend(std::iter::repeat_n(repeated, times));
        }
    }
}

/// Changes the code or version of an op.
fn reop(model: &mut Value, dice: &mut Dice) {
    let Some(codes) = list(model, "operator_codes") else { return };
    let at = dice.below(codes.len());
    let Some(code) = codes.get_mut(at).and_then(Value::as_object_mut) else { return };
    if dice.chance(50) {
        code.insert("version".into(), json!(dice.below(9)));
        return;
    }
    let op = dice.below(212);
    code.insert("deprecated_builtin_code".into(), json!(op.min(127)));
    code.insert("builtin_code".into(), json!(op));
}

/// Changes a name.
fn rename(model: &mut Value, dice: &mut Dice) {
    let names = ["", "x", "\u{1b}[2J", "a/b:0", "\u{202e}\u{7f}\u{85}", "main"];
    let name = match dice.below(8) {
        0 => "long".repeat(2000),
        n => names.get(n % names.len()).copied().unwrap_or("").to_owned(),
    };
    let holder = match dice.below(4) {
        0 => list(model, "operator_codes").map(|codes| (codes, "custom_code")),
        1 => list(model, "signature_defs").map(|list| (list, "signature_key")),
        2 => list(model, "subgraphs").map(|list| (list, "name")),
        _ => subgraph(model, dice).and_then(|graph| list(graph, "tensors")).map(|list| (list, "name")),
    };
    let Some((items, field)) = holder else { return };
    let at = dice.below(items.len());
    if let Some(item) = items.get_mut(at).and_then(Value::as_object_mut) {
        item.insert(field.into(), json!(name));
    }
}

/// Makes a node call a subgraph: CALL, CALL_ONCE, WHILE, IF, a composite, STABLEHLO_CASE.
fn call(model: &mut Value, dice: &mut Dice) {
    let graphs = model.get("subgraphs").and_then(Value::as_array).map_or(0, Vec::len);
    let (a, b) = (dice.below(graphs), dice.below(graphs));
    let (op, member, options) = match dice.below(5) {
        0 => (129, 103, json!({ "init_subgraph_index": a })),
        1 => (119, 93, json!({ "cond_subgraph_index": a, "body_subgraph_index": b })),
        2 => (118, 92, json!({ "then_subgraph_index": a, "else_subgraph_index": b })),
        3 => (31, 16, json!({ "subgraph": a })),
        _ => (206, 0, json!({ "name": "odml.rms_norm", "decomposition_subgraph_index": a })),
    };
    let Some(codes) = list(model, "operator_codes") else { return };
    codes.push(json!({ "deprecated_builtin_code": op.min(127), "builtin_code": op }));
    let code = codes.len() - 1;
    if dice.chance(40)
        && let Some(graphs) = list(model, "subgraphs")
    {
        // The called subgraph is like the caller.
        let at = dice.below(graphs.len());
        graphs.extend(graphs.get(at).cloned());
    }
    let Some(graph) = subgraph(model, dice) else { return };
    let Some(operators) = list(graph, "operators") else { return };
    let at = dice.below(operators.len());
    let Some(node) = operators.get_mut(at).and_then(Value::as_object_mut) else { return };
    node.insert("opcode_index".into(), json!(code));
    node.retain(|key, _| !key.starts_with("builtin_options") && key != "custom_options");
    if op == 206 {
        node.insert("builtin_options_2_type".into(), json!(21));
        node.insert("builtin_options_2".into(), options);
    } else {
        node.insert("builtin_options_type".into(), json!(member));
        node.insert("builtin_options".into(), options);
    }
}

/// Copies a node and its tensors from another model; its inputs become tensors of this model.
fn graft(model: &mut Value, other: &Value, dice: &mut Dice) {
    let empty = Vec::new();
    let of = |value: &Value, key: &str| value.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    let donors = other.get("subgraphs").and_then(Value::as_array).unwrap_or(&empty);
    let Some(donor) = dice.pick(donors) else { return };
    let donor_nodes = of(donor, "operators");
    let Some(node) = dice.pick(&donor_nodes) else { return };
    let mut node = node.clone();
    let code_index = node.get("opcode_index").and_then(Value::as_u64).unwrap_or(0) as usize;
    let Some(code) = of(other, "operator_codes").get(code_index).cloned() else { return };
    let (donor_tensors, donor_buffers) = (of(donor, "tensors"), of(other, "buffers"));
    let Some(codes) = list(model, "operator_codes") else { return };
    codes.push(code);
    let code = codes.len() - 1;
    let mut buffers = of(model, "buffers");
    let rewired = dice.chance(60);
    let Some(graph) = subgraph(model, dice) else { return };
    let old = graph.get("tensors").and_then(Value::as_array).map_or(0, Vec::len);
    let mut added = Vec::new();
    let mut moved: Vec<(usize, usize)> = Vec::new();
    for side in ["inputs", "outputs", "intermediates"] {
        for id in list(&mut node, side).into_iter().flatten() {
            let Some(index) = id.as_u64().map(|id| id as usize) else { continue };
            if let Some((_, to)) = moved.iter().find(|(from, _)| *from == index) {
                *id = json!(to);
                continue;
            }
            let Some(mut tensor) = donor_tensors.get(index).cloned() else { continue };
            let buffer = tensor.get("buffer").and_then(Value::as_u64).unwrap_or(0) as usize;
            let data = donor_buffers.get(buffer).filter(|buffer| has_data(buffer));
            // Computed inputs may be any tensor of the model.
            if side == "inputs" && data.is_none() && rewired && old > 0 {
                *id = json!(dice.below(old));
                continue;
            }
            tensor["buffer"] = match data {
                Some(data) => {
                    buffers.push(data.clone());
                    json!(buffers.len() - 1)
                }
                None => json!(0),
            };
            let to = old + added.len();
            moved.push((index, to));
            added.push((side, data.is_some(), tensor));
            *id = json!(to);
        }
    }
    node["opcode_index"] = json!(code);
    for (i, (side, constant, tensor)) in added.into_iter().enumerate() {
        if let Some(tensors) = list(graph, "tensors") {
            tensors.push(tensor);
        }
        let ports = if side == "outputs" { "outputs" } else { "inputs" };
        if side != "intermediates"
            && !constant
            && let Some(ports) = list(graph, ports)
        {
            ports.push(json!(old + i));
        }
    }
    if let Some(operators) = list(graph, "operators") {
        operators.push(node);
    }
    model["buffers"] = Value::Array(buffers);
}

fn subgraph<'a>(model: &'a mut Value, dice: &mut Dice) -> Option<&'a mut Value> {
    let graphs = list(model, "subgraphs")?;
    let at = dice.below(graphs.len());
    graphs.get_mut(at)
}

/// Returns a list of a table; creates it if there is none.
fn list<'a>(table: &'a mut Value, name: &str) -> Option<&'a mut Vec<Value>> {
    let table = table.as_object_mut()?;
    table.entry(name).or_insert_with(|| json!([])).as_array_mut()
}

/// Mutates the first `size` bytes of `data` for a fuzzer, and returns their new number, at most `max_size`. `None`: the
/// fuzzer should mutate the bytes itself.
pub fn in_place(data: &mut [u8], size: usize, max_size: usize, seed: u32) -> Option<usize> {
    let mut dice = Dice::new(seed.into(), 0);
    if dice.chance(10) {
        return None;
    }
    let mut model = read(data.get(..size)?)?;
    for _ in 0..=dice.below(3) {
        let donor = model.clone();
        change(&mut model, Some(&donor), &mut dice);
    }
    let file = tree::write(&model);
    let room = data.get_mut(..file.len()).filter(|_| file.len() <= max_size)?;
    room.copy_from_slice(&file);
    Some(file.len())
}
