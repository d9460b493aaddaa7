//! The headers in `include` declare the same as `abi.rs`, `ops_abi.rs` and `fusions_abi.rs` in `src/plugin`.
//!
//! `DELEGRAPH_WRITE_HEADER=1 cargo test -p delegraph-delegate-api --test header` writes them.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)] // Clippy recognizes only `#[test]` functions as tests.

use std::path::Path;

use syn::{Attribute, Expr, Fields, File, Item, ItemStruct, Lit, Meta, ReturnType, Type, TypePtr};

/// A header: the file that it is generated from, its own name, the text before and after the declarations.
struct Header {
    source: &'static str,
    name: &'static str,
    about: &'static str,
    includes: &'static str,
    entry: &'static str,
}

const HEADERS: [Header; 3] = [
    Header {
        source: "src/plugin/abi.rs",
        name: "delegraph_plugin.h",
        about: "\
/* The interface between Delegraph and delegates in shared libraries, for authors in C and C++.
 *
 * Generated from src/plugin/abi.rs of delegraph-delegate-api, whose test `header` holds the two together.
 * How to write a plugin: docs/plugins.md and examples/plugin-c.
 *
",
        includes: "\
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern \"C\" {
#endif

#if defined(_WIN32)
#define DELEGRAPH_EXPORT __declspec(dllexport)
#else
#define DELEGRAPH_EXPORT __attribute__((visibility(\"default\")))
#endif
",
        entry: "\
/** The function that a plugin exports. */
DELEGRAPH_EXPORT const DelegraphPlugin *delegraph_delegate_plugin(void);
",
    },
    Header {
        source: "src/plugin/ops_abi.rs",
        name: "delegraph_kernels.h",
        about: "\
/* The interface between Delegraph and kernels of custom ops in shared libraries, for authors in C and C++.
 *
 * Generated from src/plugin/ops_abi.rs of delegraph-delegate-api, whose test `header` holds the two together.
 * How to write a library of kernels: docs/custom-ops.md and examples/kernels-c.
 *
",
        includes: "\
#include \"delegraph_plugin.h\"

#ifdef __cplusplus
extern \"C\" {
#endif
",
        entry: "\
/** The function that a library of kernels exports. */
DELEGRAPH_EXPORT const DelegraphKernelLibrary *delegraph_kernel_library(void);
",
    },
    Header {
        source: "src/plugin/fusions_abi.rs",
        name: "delegraph_fusions.h",
        about: "\
/* The interface between Delegraph and fusions in shared libraries, for authors in C and C++.
 *
 * Generated from src/plugin/fusions_abi.rs of delegraph-delegate-api, whose test `header` holds the two together.
 * How to write a library of fusions: docs/fusion.md and examples/fusions.
 *
",
        includes: "\
#include \"delegraph_plugin.h\"

#ifdef __cplusplus
extern \"C\" {
#endif
",
        entry: "\
/** The function that a library of fusions exports. */
DELEGRAPH_EXPORT const DelegraphFusionLibrary *delegraph_fusion_library(void);
",
    },
];

#[test]
fn the_headers_are_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for header in &HEADERS {
        let source = std::fs::read_to_string(root.join(header.source)).unwrap();
        let text = header.generate(&syn::parse_file(&source).unwrap());
        let path = root.join("include").join(header.name);
        if std::env::var_os("DELEGRAPH_WRITE_HEADER").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(committed == text, "{} is stale: see the top of this file", path.display());
    }
}

impl Header {
    fn generate(&self, file: &File) -> String {
        let guard = self.name.to_uppercase().replace('.', "_");
        let mut header = self.about.to_owned();
        for line in docs(&file.attrs) {
            header += format!(" * {line}").trim_end();
            header += "\n";
        }
        header += &format!(" */\n#ifndef {guard}\n#define {guard}\n\n{}", self.includes);
        for item in &file.items {
            match item {
                Item::Const(item) => {
                    let Expr::Lit(value) = &*item.expr else { panic!("{}: not a number", item.ident) };
                    let Lit::Int(value) = &value.lit else { panic!("{}: not a number", item.ident) };
                    let value = match base(&item.ty).as_str() {
                        "uint64_t" => format!("UINT64_C({value})"),
                        "uint32_t" => format!("{value}u"),
                        _ => value.to_string(),
                    };
                    header += &format!("\n{}#define {} {value}\n", comment("", &item.attrs), item.ident);
                }
                Item::Type(item) => {
                    let target = declare(&item.ty, &item.ident.to_string());
                    header += &format!("\n{}typedef {target};\n", comment("", &item.attrs));
                }
                Item::Struct(item) => header += &structure(item),
                Item::Use(_) => {}
                _ => panic!("an item that the header cannot have"),
            }
        }
        header + &format!("\n{}\n#ifdef __cplusplus\n}}\n#endif\n\n#endif\n", self.entry)
    }
}

fn structure(item: &ItemStruct) -> String {
    let repr_c = item.attrs.iter().any(|a| matches!(&a.meta, Meta::List(l) if l.tokens.to_string() == "C"));
    assert!(repr_c, "{} is not repr(C)", item.ident);
    let Fields::Named(fields) = &item.fields else { panic!("{}: fields without names", item.ident) };
    let mut text = format!("\n{}typedef struct {} {{\n", comment("", &item.attrs), item.ident);
    for field in &fields.named {
        let name = field.ident.as_ref().expect("a name").to_string();
        text += &format!("{}    {};\n", comment("    ", &field.attrs), declare(&field.ty, &name));
    }
    text + &format!("}} {};\n", item.ident)
}

fn docs(attributes: &[Attribute]) -> Vec<String> {
    let doc = |a: &Attribute| match &a.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(lit) => match &lit.lit {
                Lit::Str(text) => Some(text.value().trim().replace("[`", "`").replace("`]", "`")),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    };
    attributes.iter().filter_map(doc).collect()
}

fn comment(indent: &str, attributes: &[Attribute]) -> String {
    let lines: Vec<String> = docs(attributes).iter().map(|line| format!("{indent} * {line}")).collect();
    let lines: Vec<&str> = lines.iter().map(|line| line.trim_end()).collect();
    format!("{indent}/**{} */\n", lines.join("\n").trim_start().trim_start_matches('*'))
}

/// A declaration of `name` with the type `ty`, as C writes it.
fn declare(ty: &Type, name: &str) -> String {
    match ty {
        Type::Ptr(TypePtr { elem, const_token, .. }) => match &**elem {
            Type::Ptr(_) if const_token.is_some() => declare(elem, &format!("const *{name}")),
            Type::Ptr(_) => declare(elem, &format!("*{name}")),
            other => format!("{}{} *{name}", if const_token.is_some() { "const " } else { "" }, base(other)),
        },
        Type::BareFn(function) => {
            let result = match &function.output {
                ReturnType::Default => String::new(),
                ReturnType::Type(_, ty) => declare(ty, ""),
            };
            let result = if result.is_empty() { "void" } else { result.trim_end() };
            let arguments = function.inputs.iter().map(|argument| {
                let name = argument.name.as_ref().map_or_else(String::new, |(name, _)| name.to_string());
                declare(&argument.ty, &name).trim_end().to_owned()
            });
            let arguments: Vec<String> = arguments.collect();
            let arguments = if arguments.is_empty() { "void".into() } else { arguments.join(", ") };
            format!("{result} (*{name})({arguments})")
        }
        Type::Path(path) if path.path.segments.last().is_some_and(|s| s.ident == "Option") => {
            let syn::PathArguments::AngleBracketed(arguments) =
                &path.path.segments.last().expect("one").arguments
            else {
                panic!("Option of nothing")
            };
            match arguments.args.first() {
                Some(syn::GenericArgument::Type(function @ Type::BareFn(_))) => declare(function, name),
                _ => panic!("only functions may be left out"),
            }
        }
        other => format!("{} {name}", base(other)),
    }
}

/// The name of a type that is neither a pointer nor a function.
fn base(ty: &Type) -> String {
    let Type::Path(path) = ty else { panic!("a type that C does not have") };
    let name = path.path.segments.last().expect("a name").ident.to_string();
    match name.as_str() {
        "u8" => "uint8_t".into(),
        "u32" => "uint32_t".into(),
        "u64" => "uint64_t".into(),
        "i32" => "int32_t".into(),
        "i64" => "int64_t".into(),
        "usize" => "size_t".into(),
        "f32" => "float".into(),
        "f64" => "double".into(),
        "c_char" => "char".into(),
        "c_void" => "void".into(),
        own if own.starts_with("Delegraph") => own.into(),
        other => panic!("{other} does not cross"),
    }
}
