//! The interface of a model, which rewriting does not change: inputs, outputs and signatures.

use delegraph_core::error::counted;
use delegraph_core::graph::{Model, Subgraph, TensorId};
use delegraph_core::{Quantization, Signature};

/// Returns how inputs, outputs or signatures of `after` differ from those of `before`; `None` if they are equal. The
/// numbers of tensors and subgraphs are not compared.
pub(super) fn difference(before: &Model, after: &Model) -> Option<String> {
    let empty = Subgraph::default();
    let old = before.subgraphs().first().unwrap_or(&empty);
    let new = after.subgraphs().first().unwrap_or(&empty);
    ends("input", (old, old.inputs()), (new, new.inputs()))
        .or_else(|| ends("output", (old, old.outputs()), (new, new.outputs())))
        .or_else(|| signatures(before, after))
}

/// Compares the inputs or the outputs of two subgraphs; `what` is "input" or "output".
fn ends(
    what: &str,
    (old, old_ids): (&Subgraph, &[TensorId]),
    (new, new_ids): (&Subgraph, &[TensorId]),
) -> Option<String> {
    if old_ids.len() != new_ids.len() {
        return Some(format!("it has {}, it had {}", counted(new_ids.len(), what), old_ids.len()));
    }
    old_ids.iter().zip(new_ids).enumerate().find_map(|(i, (old_id, new_id))| {
        let (a, b) = (old.tensors().get(old_id.0)?, new.tensors().get(new_id.0)?);
        let differs = |is: String, was: String| Some(format!("{what} {i} is {is}, was {was}"));
        if a.name() != b.name() {
            return differs(format!("\"{}\"", b.name()), format!("\"{}\"", a.name()));
        }
        if (a.ty(), a.shape()) != (b.ty(), b.shape()) {
            return differs(format!("{} {}", b.ty(), b.shape()), format!("{} {}", a.ty(), a.shape()));
        }
        let same = same_quantization(a.quantization(), b.quantization());
        (!same).then(|| format!("{what} {i} (\"{}\") has a different quantization", a.name()))
    })
}

/// Compares quantizations whose scales are tensors by their kind only, since the numbers of tensors may differ.
fn same_quantization(a: Option<&Quantization>, b: Option<&Quantization>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) if a.affine().is_none() && b.affine().is_none() => {
            std::mem::discriminant(a) == std::mem::discriminant(b)
        }
        _ => a == b,
    }
}

fn signatures(before: &Model, after: &Model) -> Option<String> {
    let keys = |model: &Model| model.signatures().iter().map(|s| s.key().to_owned()).collect::<Vec<_>>();
    let (old, new) = (keys(before), keys(after));
    if old != new {
        return Some(format!("its signatures are [{}], were [{}]", new.join(", "), old.join(", ")));
    }
    let mut pairs = before.signatures().iter().zip(after.signatures());
    let differs = |(old, new): &(&Signature, &Signature)| named(before, old) != named(after, new);
    let (signature, _) = pairs.find(differs)?;
    Some(format!("signature \"{}\" has different inputs or outputs", signature.key()))
}

/// The inputs and the outputs of a signature, each with its name in the signature and the name of its tensor.
type Named<'m> = [Vec<(&'m str, Option<&'m str>)>; 2];

fn named<'m>(model: &'m Model, signature: &'m Signature) -> Named<'m> {
    let graph = model.subgraphs().get(signature.subgraph());
    [signature.inputs(), signature.outputs()].map(|list| {
        let tensor = |id: &TensorId| Some(graph?.tensors().get(id.0)?.name());
        list.iter().map(|(name, id)| (name.as_str(), tensor(id))).collect()
    })
}
