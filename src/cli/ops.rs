//! `ops`: the ops and versions of each backend.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use delegraph::TensorType;
use delegraph::core::ops::{DEFS, OpDef, definition};
use delegraph::core::resolver::merged_versions;
use delegraph::core::{BuiltinOp, Op, OpResolver};
use delegraph::delegate_api::VersionTable;
#[cfg(feature = "wgpu")]
use delegraph::delegate_wgpu::WgpuDelegate;
use delegraph::{BuiltinOpResolver, MutableOpResolver};
use delegraph_conformance::cases;
use serde::Serialize;

use super::delegates::Choice;
use super::failure::{Exit, Failure};
use super::kernels::Kernels;
use super::output::{Document, Output};
use super::text::{bounds, raw_name};

/// List the ops and versions that each backend runs, as Markdown or JSON
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only these backends [default: cpu, reference and wgpu]
    #[arg(long = "delegate", value_name = "D")]
    delegates: Vec<Choice>,
    #[command(flatten)]
    kernels: Kernels,
    /// Write Rust source instead: a resolver with the kernels that these models need, and no others
    #[arg(long, value_name = "MODEL", num_args = 1.., conflicts_with_all = ["delegates", "libraries"])]
    resolver_for: Vec<PathBuf>,
}

#[derive(Serialize)]
struct Ops {
    delegates: Vec<String>,
    ops: Vec<OpLine>,
}

#[derive(Serialize)]
struct OpLine {
    op: String,
    /// The code of a builtin op.
    code: Option<i32>,
    /// The name of the op's file in every crate; none for custom ops.
    family: Option<&'static str>,
    /// The options table of the schema; `params` has its fields.
    options: Option<&'static str>,
    params: Vec<Param>,
    /// Every known version of the op, with the TFLite release that first had it.
    history: Vec<(u32, &'static str)>,
    /// Per backend, the ranges of versions that it runs.
    versions: BTreeMap<String, Vec<(u32, u32)>>,
    /// Per backend, the supported types of data: for CPU kernels the types in the project's cases.
    types: BTreeMap<String, Vec<&'static str>>,
    /// The reason why the CPU kernels run other versions than TFLite's releases, if they do.
    note: Option<&'static str>,
}

/// A param, and the first version of the op that has it.
#[derive(Serialize)]
struct Param {
    name: &'static str,
    since: u32,
}

/// Versions and types that a backend supports.
enum Backend {
    Kernels(Arc<MutableOpResolver>),
    /// With the supported types per op, if the delegate lists them.
    Delegate(VersionTable, Option<fn(BuiltinOp) -> &'static [TensorType]>),
}

impl Backend {
    fn versions(&self, op: &Op) -> Vec<(u32, u32)> {
        match self {
            Backend::Kernels(resolver) => merged_versions(resolver.versions(op)).iter().map(bounds).collect(),
            Backend::Delegate(table, _) => {
                let known = op.builtin().and_then(definition).and_then(|def| def.history.first());
                let lowest = known.map_or(1, |(version, _)| *version);
                table.max_version(op).map(|max| (lowest.min(max), max)).into_iter().collect()
            }
        }
    }

    fn types(&self, op: &Op) -> Vec<&'static str> {
        let types = match (self, op.builtin()) {
            (Backend::Kernels(resolver), Some(op)) => {
                let resolver: Arc<dyn OpResolver> = resolver.clone();
                cases::types(op, &resolver)
            }
            (Backend::Delegate(_, types), Some(op)) => {
                types.map_or_else(Vec::new, |types| types(op).to_vec())
            }
            (_, None) => Vec::new(),
        };
        types.into_iter().map(TensorType::name).collect()
    }

    /// Returns the custom ops of a delegate or, for CPU kernels, of libraries.
    fn custom_ops(&self) -> Vec<&Op> {
        let all: Vec<&Op> = match self {
            Backend::Delegate(table, _) => table.iter().map(|(op, _)| op).collect(),
            Backend::Kernels(resolver) => resolver.registered().map(|(op, _)| op).collect(),
        };
        all.into_iter().filter(|op| op.builtin().is_none()).collect()
    }
}

pub(crate) fn run(arguments: &Arguments, out: &Output) -> Result<Exit, Failure> {
    if !arguments.resolver_for.is_empty() {
        return super::selective::run(&arguments.resolver_for, out);
    }
    let kernels = &arguments.kernels;
    let mut backends: Vec<(String, Backend)> = Vec::new();
    for choice in &arguments.delegates {
        backends.push((choice.name(), backend(choice, kernels)?));
    }
    if backends.is_empty() {
        backends.push(("cpu".into(), backend(&Choice::Cpu, kernels)?));
        backends.push(("reference".into(), backend(&Choice::Reference, kernels)?));
        #[cfg(feature = "wgpu")]
        let versions = WgpuDelegate::supported_versions();
        #[cfg(feature = "wgpu")]
        backends.push(("wgpu".into(), Backend::Delegate(versions, Some(WgpuDelegate::supported_types))));
    }
    let line = |op: &Op, def: Option<&OpDef>| OpLine {
        op: raw_name(op),
        code: op.builtin().map(|code| code.0),
        family: def.map(|d| d.family),
        options: def.and_then(|d| d.codec.options_table()),
        params: def.map_or_else(Vec::new, |d| {
            d.codec.fields.iter().map(|f| Param { name: f.name, since: f.since }).collect()
        }),
        history: def.map_or_else(Vec::new, |d| d.history.to_vec()),
        versions: backends.iter().map(|(name, b)| (name.clone(), b.versions(op))).collect(),
        types: backends.iter().map(|(name, b)| (name.clone(), b.types(op))).collect(),
        note: def.and_then(note),
    };
    let mut ops: Vec<OpLine> = DEFS.iter().map(|def| line(&Op::Builtin(def.op), Some(def))).collect();
    ops.sort_by(|a, b| a.op.cmp(&b.op));
    let customs: BTreeMap<String, &Op> =
        backends.iter().flat_map(|(_, b)| b.custom_ops()).map(|op| (op.to_string(), op)).collect();
    ops.extend(customs.into_values().map(|op| line(op, None)));
    out.print(&Ops { delegates: backends.into_iter().map(|(name, _)| name).collect(), ops })?;
    Ok(Exit::Fine)
}

fn backend(choice: &Choice, kernels: &Kernels) -> Result<Backend, Failure> {
    Ok(match (choice, choice.open()?) {
        #[cfg(feature = "wgpu")]
        (Choice::Wgpu(_), Some(delegate)) => {
            Backend::Delegate(delegate.max_versions().clone(), Some(WgpuDelegate::supported_types))
        }
        (_, Some(delegate)) => Backend::Delegate(delegate.max_versions().clone(), None),
        (choice, None) => Backend::Kernels(Arc::new(kernels.resolver(*choice == Choice::Reference)?)),
    })
}

/// The reason why the CPU kernels run other versions of an op than TFLite's releases.
fn note(def: &OpDef) -> Option<&'static str> {
    let op = Op::Builtin(def.op);
    let kernels = merged_versions(BuiltinOpResolver::new().versions(&op));
    let released = merged_versions(def.history.iter().map(|(version, _)| *version..=*version).collect());
    // The only op that TFLite's version map assigns to a release whose resolvers do not register it.
    if def.op == BuiltinOp::STABLEHLO_CBRT {
        return Some(
            "TFLite's version map names it, but no release has a kernel; this one follows StableHLO",
        );
    }
    if kernels == released && !released.is_empty() {
        return None;
    }
    Some(match (def.family, kernels.is_empty(), released.is_empty()) {
        ("special", ..) if def.op == BuiltinOp::CUSTOM => "not a builtin op: custom ops are found by name",
        ("special", ..) => "a marker, not an op: a node with this code is rejected",
        (_, true, true) => "no TFLite release runs it, and there is no kernel here",
        (_, false, true) if op.to_string().starts_with("STABLEHLO_") => {
            "no TFLite release runs it; the kernel follows the StableHLO specification"
        }
        (_, false, true) => "no TFLite release runs it",
        (_, true, false) => "TFLite's version map names it, but no release has a kernel",
        _ => "not every version is implemented yet",
    })
}

impl Ops {
    /// The backends, grouped if they support the same types for every op.
    fn with_same_types(&self) -> Vec<Vec<&str>> {
        let mut groups: Vec<Vec<&str>> = Vec::new();
        for name in &self.delegates {
            let same = |other: &str| self.ops.iter().all(|op| op.types.get(other) == op.types.get(name));
            match groups.iter_mut().find(|group| same(group[0])) {
                Some(group) => group.push(name),
                None => groups.push(vec![name]),
            }
        }
        groups
    }
}

impl Document for Ops {
    fn text(&self) -> String {
        let groups = self.with_same_types();
        let mut text = format!("| op | TFLite | {} | ", self.delegates.join(" | "));
        for group in &groups {
            text += &format!("types on {} | ", group.join(", "));
        }
        text += "|\n|---|---|";
        text += &"---|".repeat(self.delegates.len() + groups.len() + 1);
        for op in &self.ops {
            let known = merged_versions(op.history.iter().map(|(v, _)| *v..=*v).collect());
            let known: Vec<_> = known.iter().map(bounds).collect();
            let cells =
                self.delegates.iter().map(|d| op.versions.get(d).map_or(String::new(), |v| ranges(v)));
            let cells = cells.collect::<Vec<_>>().join(" | ");
            let note = op.note.unwrap_or_default();
            let types =
                groups.iter().map(|group| op.types.get(group[0]).map_or(String::new(), |t| t.join(", ")));
            let types = types.collect::<Vec<_>>().join(" | ");
            text += &format!("\n| {} | {} | {cells} | {types} | {note} |", op.op, ranges(&known));
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
