//! `ops`: which ops at which versions each backend runs.

use std::collections::{BTreeMap, HashMap};

use delegraph::core::ops::DEFS;
use delegraph::core::resolver::merged;
use delegraph::core::{Op, OpResolver};
use delegraph::delegate_api::VersionTable;
use delegraph::{BuiltinOpResolver, ReferenceOpResolver, delegate_api};
use serde::Serialize;

use super::delegates::{Choice, open_wgpu};
use super::failure::{Exit, Failure};
use super::output::{Document, Output};

/// List the ops and versions that each backend runs, as Markdown or JSON
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only these backends [default: cpu, reference, and wgpu where there is an adapter]
    #[arg(long = "delegate", value_name = "D")]
    delegates: Vec<Choice>,
}

#[derive(Serialize)]
struct Ops {
    delegates: Vec<String>,
    ops: Vec<OpLine>,
}

#[derive(Serialize)]
struct OpLine {
    op: String,
    /// The name of the file that has the op in every crate; none for custom ops.
    family: Option<&'static str>,
    /// Every version of the op that is known, with the TFLite release that first had it.
    history: Vec<(u32, &'static str)>,
    /// Per backend, the ranges of versions that it runs.
    versions: BTreeMap<String, Vec<(u32, u32)>>,
}

/// What a backend says of an op.
enum Backend {
    Kernels(Box<dyn OpResolver>),
    Delegate(VersionTable),
}

impl Backend {
    fn versions(&self, op: &Op) -> Vec<(u32, u32)> {
        match self {
            Backend::Kernels(resolver) => merged(resolver.versions(op)),
            Backend::Delegate(table) => table.max(op).map(|max| (1, max)).into_iter().collect(),
        }
    }

    fn custom_ops(&self) -> impl Iterator<Item = &Op> {
        let table = match self {
            Backend::Delegate(table) => Some(table),
            Backend::Kernels(_) => None,
        };
        table.into_iter().flat_map(|t| t.iter().map(|(op, _)| op)).filter(|op| op.builtin().is_none())
    }
}

pub(crate) fn run(arguments: &Arguments, out: &Output) -> Result<Exit, Failure> {
    let mut backends: Vec<(String, Backend)> = Vec::new();
    for choice in &arguments.delegates {
        backends.push((choice.name(), backend(choice)?));
    }
    if backends.is_empty() {
        backends.push(("cpu".into(), backend(&Choice::Cpu)?));
        backends.push(("reference".into(), backend(&Choice::Reference)?));
        match open_wgpu(None) {
            Ok(wgpu) => {
                let table = delegate_api::Delegate::max_versions(&wgpu).clone();
                backends.push(("wgpu".into(), Backend::Delegate(table)));
            }
            Err(failure) => log::warn!("wgpu is left out: {failure}"),
        }
    }
    let line = |op: Op, family: Option<&'static str>, history: &[(u32, &'static str)]| OpLine {
        op: op.to_string(),
        family,
        history: history.to_vec(),
        versions: backends.iter().map(|(name, b)| (name.clone(), b.versions(&op))).collect(),
    };
    let mut ops: Vec<OpLine> =
        DEFS.iter().map(|def| line(Op::Builtin(def.op), Some(def.family), def.history)).collect();
    ops.sort_by(|a, b| a.op.cmp(&b.op));
    let customs: HashMap<&Op, ()> =
        backends.iter().flat_map(|(_, b)| b.custom_ops()).map(|op| (op, ())).collect();
    let mut customs: Vec<OpLine> = customs.into_keys().map(|op| line(op.clone(), None, &[])).collect();
    customs.sort_by(|a, b| a.op.cmp(&b.op));
    ops.extend(customs);
    out.print(&Ops { delegates: backends.into_iter().map(|(name, _)| name).collect(), ops })?;
    Ok(Exit::Fine)
}

fn backend(choice: &Choice) -> Result<Backend, Failure> {
    Ok(match (choice, choice.open()?) {
        (_, Some(delegate)) => Backend::Delegate(delegate.max_versions().clone()),
        (Choice::Reference, None) => Backend::Kernels(Box::new(ReferenceOpResolver::new())),
        (_, None) => Backend::Kernels(Box::new(BuiltinOpResolver::new())),
    })
}

impl Document for Ops {
    fn text(&self) -> String {
        let mut text = format!("| op | known versions | {} |\n|---|---|", self.delegates.join(" | "));
        text += &"---|".repeat(self.delegates.len());
        for op in &self.ops {
            let known: Vec<(u32, u32)> = merged(op.history.iter().map(|(v, _)| (*v, *v)).collect());
            let cells =
                self.delegates.iter().map(|d| op.versions.get(d).map_or(String::new(), |v| ranges(v)));
            text +=
                &format!("\n| {} | {} | {} |", op.op, ranges(&known), cells.collect::<Vec<_>>().join(" | "));
        }
        text + "\n"
    }
}

pub(super) fn ranges(ranges: &[(u32, u32)]) -> String {
    let range =
        |&(low, high): &(u32, u32)| if low == high { low.to_string() } else { format!("{low}–{high}") };
    ranges.iter().map(range).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_read_well() {
        assert_eq!(ranges(&[(1, 3), (5, 5)]), "1–3, 5");
    }
}
