//! `ops --resolver-for`: Rust source of a resolver with the kernels that some models need, and no others.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use delegraph::core::resolver::check_resolved;
use delegraph::core::{MutableOpResolver, Op, OpResolver};
#[cfg(feature = "optimized")]
use delegraph::interpreter::kernels::optimized;
use delegraph::interpreter::kernels::{custom, reference};
use delegraph::{BuiltinOpResolver, Model};
use serde::Serialize;

use super::failure::{Exit, Failure};
use super::model;
use super::output::{Document, Output};

#[derive(Serialize)]
struct Selection {
    /// The Rust source of the resolver.
    source: String,
    /// The ops of the models, each with its versions.
    ops: BTreeMap<String, Vec<u32>>,
    /// Ops whose kernels the application provides.
    custom_ops: Vec<String>,
}

impl Document for Selection {
    fn text(&self) -> String {
        self.source.clone()
    }
}

pub(crate) fn run(paths: &[PathBuf], out: &Output) -> Result<Exit, Failure> {
    let mut used: BTreeMap<String, (Op, BTreeSet<u32>)> = BTreeMap::new();
    for path in paths {
        let model = model::load(path)?;
        check(&model)?;
        for node in model.subgraphs().iter().flat_map(|g| g.nodes()) {
            let (_, versions) =
                used.entry(node.op().to_string()).or_insert_with(|| (node.op().clone(), BTreeSet::new()));
            versions.insert(node.version());
        }
    }
    let resolver = BuiltinOpResolver::new();
    let missing = |(op, version): &(&Op, u32)| resolver.find(op, *version).is_none();
    let each = used.values().flat_map(|(op, versions)| versions.iter().map(move |v| (op, *v)));
    let (own, known): (Vec<_>, Vec<_>) = each.partition(missing);
    out.print(&Selection {
        source: source(paths, &known, &own),
        ops: used.iter().map(|(name, (_, v))| (name.clone(), v.iter().copied().collect())).collect(),
        custom_ops: own.iter().map(|(op, version)| format!("{op} version {version}")).collect(),
    })?;
    Ok(Exit::Fine)
}

/// Builtin ops need kernels; the application may provide those of custom ops.
fn check(model: &Model) -> Result<(), Failure> {
    let Err(mut unresolved) = check_resolved(model, &BuiltinOpResolver::new()) else { return Ok(()) };
    unresolved.ops.retain(|op| op.op.builtin().is_some());
    if unresolved.ops.is_empty() { Ok(()) } else { Err(delegraph::Error::from(unresolved).into()) }
}

/// The name of a family of kernels, and the function that registers it.
type Family = (&'static str, fn(&mut MutableOpResolver));

/// The functions that register a kernel for one of `ops`, as paths in `delegraph::interpreter::kernels`.
fn families(ops: &[(&Op, u32)]) -> Vec<String> {
    let mut needed = Vec::new();
    let mut base = MutableOpResolver::new();
    let mut add = |module: &str, all: &[Family]| {
        for (family, register) in all {
            // Registered after the reference kernels, which optimized kernels require.
            let mut one = MutableOpResolver::extending(base.clone());
            register(&mut one);
            let registers = |(op, range): (&Op, &std::ops::RangeInclusive<u32>)| {
                ops.iter().any(|(wanted, version)| *wanted == op && range.contains(version))
            };
            if one.registered().any(registers) {
                needed.push(format!("{module}::families::{family}"));
            }
        }
        all.iter().for_each(|(_, register)| register(&mut base));
    };
    add("reference", reference::families::ALL);
    add("custom", custom::families::ALL);
    #[cfg(feature = "optimized")]
    add("optimized", optimized::families::ALL);
    needed
}

fn source(paths: &[PathBuf], known: &[(&Op, u32)], own: &[(&Op, u32)]) -> String {
    let names = paths.iter().map(|path| path.file_name().unwrap_or_default().to_string_lossy());
    let mut text = format!(
        "//! The kernels of {}, and no others: `Interpreter::builder_with_resolver(model, resolver(…))`.\n//!\n\
         //! Written by `delegraph ops --resolver-for`; generate it again when the models change.\n\n",
        names.collect::<Vec<_>>().join(", ")
    );
    let families = families(known);
    let modules: BTreeSet<&str> = families.iter().filter_map(|f| f.split("::").next()).collect();
    let modules = modules.into_iter().collect::<Vec<_>>().join(", ");
    let builtin = known.iter().any(|(op, _)| op.builtin().is_some());
    let custom = known.iter().chain(own).any(|(op, _)| op.builtin().is_none());
    let ops = [(builtin, "BuiltinOp"), (true, "MutableOpResolver"), (custom, "Op")];
    let mut ops: Vec<&str> = ops.iter().filter(|(used, _)| *used).map(|(_, name)| *name).collect();
    if !own.is_empty() {
        ops.retain(|name| *name != "Op" || known.iter().any(|(op, _)| op.builtin().is_none()));
        ops.push("Registration");
    }
    text += &format!("use delegraph::core::{{{}}};\n", ops.join(", "));
    if !modules.is_empty() {
        text += &format!("use delegraph::interpreter::kernels::{{{modules}}};\n");
    }
    let methods = methods(own);
    if !own.is_empty() {
        text += "\n/// Kernels that the application brings: custom ops that Delegraph has none for.\npub trait CustomKernels {\n";
        for ((op, version), method) in own.iter().zip(&methods) {
            text += &format!(
                "    /// The kernel of {op} at version {version}.\n    fn {method}(&self) -> Registration;\n"
            );
        }
        text += "}\n";
    }
    let argument = if own.is_empty() { "" } else { "custom: &impl CustomKernels" };
    text += &format!(
        "\n/// A resolver with the kernels of these models.\npub fn resolver({argument}) -> MutableOpResolver {{\n"
    );
    if !families.is_empty() {
        text += "    // Whole families are linked; families that are not named here are not.\n";
        text += "    let mut families = MutableOpResolver::new();\n";
        for family in &families {
            text += &format!("    {family}(&mut families);\n");
        }
    }
    text += "    let mut resolver = MutableOpResolver::new();\n";
    for (op, version) in known {
        let op = match op {
            Op::Builtin(code) => format!("BuiltinOp::{}", code.variant_name().unwrap_or_default()),
            Op::Custom(name) => format!("Op::custom({:?})", &**name),
        };
        text += &format!("    resolver.add_from(&families, {op}, {version});\n");
    }
    for ((op, version), method) in own.iter().zip(&methods) {
        if let Op::Custom(name) = op {
            let name: &str = name;
            text += &format!("    resolver.add_custom({name:?}, custom.{method}(), {version});\n");
        }
    }
    text + "    resolver\n}\n"
}

/// A method name for each op: its characters that are valid in Rust names, and its version if there are several.
fn methods(own: &[(&Op, u32)]) -> Vec<String> {
    let mut taken = BTreeSet::new();
    let name = |(op, version): &(&Op, u32)| {
        let Op::Custom(name) = op else { return String::new() };
        let mut method = String::new();
        for c in name.chars() {
            if c.is_ascii_uppercase() && method.ends_with(|c: char| c.is_ascii_lowercase()) {
                method.push('_');
            }
            method.push(if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' });
        }
        let several = own.iter().filter(|(other, _)| other == op).count() > 1;
        let mut method =
            if several { format!("kernel_{method}_v{version}") } else { format!("kernel_{method}") };
        while !taken.insert(method.clone()) {
            method.push('_');
        }
        method
    };
    own.iter().map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_methods() {
        let check = |names: &[(&str, u32)], want: &[&str]| {
            let ops: Vec<(Op, u32)> = names.iter().map(|(name, v)| (Op::custom(name), *v)).collect();
            assert_eq!(methods(&ops.iter().map(|(op, v)| (op, *v)).collect::<Vec<_>>()), want);
        };
        check(&[("Sin", 1), ("MyOp", 2)], &["kernel_sin", "kernel_my_op"]);
        check(&[("a.b", 1), ("a-b", 1), ("é", 1)], &["kernel_a_b", "kernel_a_b_", "kernel__"]);
        check(&[("Sin", 1), ("Sin", 3)], &["kernel_sin_v1", "kernel_sin_v3"]);
    }
}
