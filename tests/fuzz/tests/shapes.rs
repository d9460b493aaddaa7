//! Operands without dimensions, without elements or of one element, in a node of each op and combination of types: a
//! result or an error, and no panic.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex};

use delegraph_core::{Model, ModelBytes};
use delegraph_fuzz::{models, mutate, seeds, tree};
use delegraph_interpreter::{
    BuiltinOpResolver, Interpreter, InterpreterBuilder, ReferenceOpResolver, ResourceLimits,
};
use serde_json::{Value, json};

/// The shapes that operands get.
const SHAPES: [&[usize]; 5] = [&[], &[0], &[1], &[1, 0], &[0, 1]];

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The tensors that a node of a model of one node reads, each once, those with data first.
fn operands(model: &Value) -> (Vec<usize>, Vec<usize>) {
    let inputs = &model["subgraphs"][0]["operators"][0]["inputs"];
    let mut tensors: Vec<usize> =
        list(inputs).iter().filter_map(|i| usize::try_from(i.as_i64()?).ok()).collect();
    tensors.sort_unstable();
    tensors.dedup();
    tensors.into_iter().partition(|&tensor| !data(model, tensor).is_empty())
}

/// The data of a tensor, one character per byte.
fn data(model: &Value, tensor: usize) -> &str {
    let buffer = model["subgraphs"][0]["tensors"][tensor]["buffer"].as_u64().unwrap_or(0);
    model["buffers"][buffer as usize]["data"].as_str().unwrap_or_default()
}

/// Changes a tensor's shape, and cuts its data to what the new shape has.
fn reshape(model: &mut Value, tensor: usize, shape: &[usize]) {
    let path = format!("/subgraphs/0/tensors/{tensor}");
    let before: usize = list(&model["subgraphs"][0]["tensors"][tensor]["shape"])
        .iter()
        .filter_map(|extent| usize::try_from(extent.as_u64()?).ok())
        .product();
    let bytes = data(model, tensor);
    if !bytes.is_empty() {
        // Rounded up, as for two INT4 in a byte.
        let count = (bytes.chars().count() * shape.iter().product::<usize>()).div_ceil(before.max(1));
        let cut: String = bytes.chars().take(count).collect();
        let buffer = list(&model["buffers"]).len();
        tree::set(model, "/buffers/-", json!({ "data": cut }));
        tree::set(model, &format!("{path}/buffer"), buffer);
    }
    tree::set(model, &format!("{path}/shape"), shape);
    tree::set(model, &format!("{path}/has_rank"), true);
    tree::remove(model, &format!("{path}/shape_signature"));
}

/// Returns the model with each shape for one operand, for all, for the constants, or for the others, and with each pair
/// of shapes for the constants and the others.
fn variants(model: &Value) -> Vec<Value> {
    let (constants, others) = operands(model);
    let all: Vec<usize> = [&constants[..], &others[..]].concat();
    let mut groups: Vec<Vec<usize>> = all.iter().map(|&tensor| vec![tensor]).collect();
    groups.extend([all, constants.clone(), others.clone()]);
    let changed = |changes: &[(&[usize], &[usize])]| {
        let mut model = model.clone();
        for &(tensors, shape) in changes {
            tensors.iter().for_each(|&tensor| reshape(&mut model, tensor, shape));
        }
        model
    };
    let mut variants = Vec::new();
    for shape in SHAPES {
        variants.extend(groups.iter().map(|group| changed(&[(group, shape)])));
        variants.extend(SHAPES.map(|other| changed(&[(&constants, shape), (&others, other)])));
    }
    variants
}

#[cfg(feature = "wgpu")]
fn on_gpu(model: Model) -> Option<InterpreterBuilder> {
    models::delegate().map(|delegate| Interpreter::builder(model).delegate(delegate))
}

#[cfg(not(feature = "wgpu"))]
fn on_gpu(_: Model) -> Option<InterpreterBuilder> {
    None
}

#[test]
fn degenerate_operands_do_not_panic() {
    let limits = || ResourceLimits::default().with_memory(64 << 20);
    // The interpreter converts panics of kernels and delegates to errors or fallbacks, so the hook records them.
    let panicked = Arc::new(Mutex::new(None));
    let hook = panicked.clone();
    std::panic::set_hook(Box::new(move |panic| *hook.lock().unwrap() = Some(panic.to_string())));
    let mut seen = HashSet::new();
    let (mut runs, mut results, mut panics) = (0, 0, BTreeMap::new());
    for file in seeds::cases() {
        let Some(model) = mutate::read(&file) else { continue };
        if list(&model["subgraphs"]).len() != 1 || list(&model["subgraphs"][0]["operators"]).len() != 1 {
            continue;
        }
        let (constants, others) = operands(&model);
        let types: Vec<_> = [constants, others]
            .concat()
            .iter()
            .map(|&t| &model["subgraphs"][0]["tensors"][t]["type"])
            .collect();
        let kind = format!("{} {types:?}", model["operator_codes"][0]);
        // Other cases of the same op and types differ in params, and in shapes that are replaced.
        if !seen.insert(kind.clone()) {
            continue;
        }
        for variant in variants(&model) {
            let bytes = ModelBytes::new(tree::write(&variant));
            let Ok(model) = Model::from_bytes(bytes) else { continue };
            let optimized = Interpreter::builder(model.clone()).resolver(BuiltinOpResolver::new());
            let reference = Interpreter::builder(model.clone()).resolver(ReferenceOpResolver::new());
            for builder in [Some(optimized), Some(reference), on_gpu(model)].into_iter().flatten() {
                let outcome = models::run(builder.limits(limits()));
                runs += 1;
                results += usize::from(outcome.is_ok());
                if let Some(panic) = panicked.lock().unwrap().take() {
                    panics.entry(panic).or_insert_with(|| format!("{kind}: {}", variant["subgraphs"][0]));
                }
            }
        }
    }
    drop(std::panic::take_hook());
    assert!(panics.is_empty(), "{panics:#?}");
    assert!(results > runs / 10 && results < runs, "{results} of {runs} runs have a result");
}
