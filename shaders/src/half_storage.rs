//! Buffers of 16-bit floats for kernels that are written for 32-bit words.
//!
//! Only loads and stores change: a load converts to 32 bits, so that a kernel computes and accumulates as before; a
//! store rounds to 16 bits. The text of a variant declares each buffer as an array and accesses it by index, which makes
//! both visible without parsing WGSL.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The first line of a text with 16-bit floats.
const ENABLE: &str = "enable f16;\n";
/// Prefix of the functions that round an element to 16 bits.
const STORE: &str = "to_halves_";

/// A buffer whose elements are converted to 16-bit floats.
#[derive(Clone, Debug, PartialEq)]
struct Buffer {
    /// Scalars per element of the array.
    width: u32,
    /// The scalar that the kernel reads and writes: `f32`, or `u32` and `i32` with the bits of a float.
    scalar: String,
}

impl Buffer {
    fn vector(&self, scalar: &str) -> String {
        if self.width == 1 { scalar.into() } else { format!("vec{}<{scalar}>", self.width) }
    }

    /// Returns the expression for an element that was loaded as 16-bit floats.
    fn widened(&self, element: &str) -> String {
        let floats = format!("{}({element})", self.vector("f32"));
        if self.scalar == "f32" {
            floats
        } else {
            format!("bitcast<{}>({floats})", self.vector(&self.scalar))
        }
    }

    /// Returns the expression for the 16-bit floats of `value`, an element or, with `component`, a part of one.
    fn narrowed(&self, value: &str, component: bool) -> String {
        let of = if component { &Buffer { width: 1, scalar: self.scalar.clone() } } else { self };
        match self.scalar.as_str() {
            "f32" => format!("{STORE}{}({value})", of.width),
            _ => format!("{STORE}{}(bitcast<{}>({value}))", of.width, of.vector("f32")),
        }
    }
}

/// Returns `source` with 16-bit floats in the storage buffers whose binding numbers `is_half` accepts.
///
/// # Errors
/// The declaration or access that is not an array accessed by index.
pub(crate) fn rewrite(source: &str, is_half: impl Fn(u32) -> bool) -> Result<String, String> {
    let mut aliases = BTreeMap::new();
    let mut buffers = BTreeMap::new();
    let mut out = String::from(ENABLE);
    let mut rest = String::with_capacity(source.len());
    for line in source.lines() {
        if let Some((name, ty)) = line.strip_prefix("alias ").and_then(|l| l.split_once(" = ")) {
            aliases.insert(name.to_owned(), ty.trim_end_matches(';').to_owned());
        }
        match declaration(line).filter(|(binding, ..)| is_half(*binding)) {
            Some((_, before, name, element)) => {
                let buffer = element_of(element, &aliases)
                    .ok_or_else(|| format!("{name} is an array of {element}, which has no 16-bit form"))?;
                let _ = writeln!(rest, "{before}{name}: array<{}>;", buffer.vector("f16"));
                buffers.insert(name.to_owned(), buffer);
            }
            // A directive of WGSL is only valid before all declarations.
            None if line.starts_with("enable ") => {
                out.push_str(line);
                out.push('\n');
            }
            None => {
                rest.push_str(line.split("//").next().unwrap_or(""));
                rest.push('\n');
            }
        }
    }
    Rewriter { buffers: &buffers }.text(&rest, &mut out)?;
    let mut widths: Vec<u32> = buffers.values().flat_map(|b| [1, b.width]).collect();
    widths.sort_unstable();
    widths.dedup();
    for width in widths {
        let floats = Buffer { width, scalar: "f32".into() };
        let (wide, narrow) = (floats.vector("f32"), floats.vector("f16"));
        // Finite numbers stay finite; infinities and NaN are kept.
        let _ = write!(
            out,
            "fn {STORE}{width}(v: {wide}) -> {narrow} {{\n    \
             return {narrow}(select(v, clamp(v, {wide}(-65504.0), {wide}(65504.0)), abs(v) <= {wide}(3.4028234e38)));\n}}\n"
        );
    }
    Ok(out)
}

/// Splits the declaration of a storage buffer into binding number, text before the name, name and element type.
fn declaration(line: &str) -> Option<(u32, &str, &str, &str)> {
    let (_, after) = line.split_once("@binding(")?;
    let number = after.split_once(')')?.0.parse().ok()?;
    let start = line.find("var<storage")?;
    let (kind, _) = line.get(start..)?.split_once('>')?;
    let (name, ty) = line.get(start + kind.len() + 1..)?.split_once(':')?;
    let before = line.get(..line.len() - ty.len() - 1 - name.trim_start().len())?;
    let element = ty.trim().strip_prefix("array<")?.strip_suffix(">;")?;
    Some((number, before, name.trim(), element))
}

/// Resolves the element type of an array. `None` for types other than scalars and vectors of 32 bits.
fn element_of(ty: &str, aliases: &BTreeMap<String, String>) -> Option<Buffer> {
    match aliases.get(ty) {
        Some(of) if of != ty => return element_of(of, aliases),
        _ => {}
    }
    if matches!(ty, "f32" | "u32" | "i32") {
        return Some(Buffer { width: 1, scalar: ty.into() });
    }
    let (width, scalar) = ty.strip_prefix("vec")?.strip_suffix('>')?.split_once('<')?;
    let scalar = element_of(scalar, aliases).filter(|scalar| scalar.width == 1)?.scalar;
    Some(Buffer { width: width.parse().ok()?, scalar })
}

struct Rewriter<'b> {
    buffers: &'b BTreeMap<String, Buffer>,
}

impl Rewriter<'_> {
    /// Appends `text` with all accesses to the buffers converted.
    fn text(&self, text: &str, out: &mut String) -> Result<(), String> {
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            if !is_name(c) {
                out.push(c);
                rest = &rest[c.len_utf8()..];
                continue;
            }
            let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            let is_member = out.ends_with('.');
            rest = match self.buffers.get(word).filter(|_| after.starts_with('[') && !is_member) {
                Some(buffer) => self.access(word, buffer, after, out)?,
                None => {
                    out.push_str(word);
                    after
                }
            };
        }
        Ok(())
    }

    /// Converts the access to `name`, whose index `text` begins with. Returns the text after the access.
    fn access<'t>(
        &self,
        name: &str,
        buffer: &Buffer,
        text: &'t str,
        out: &mut String,
    ) -> Result<&'t str, String> {
        let (index, after) = bracketed(text).ok_or_else(|| format!("{name}[ has no end"))?;
        let mut element = format!("{name}[");
        self.text(index, &mut element)?;
        element.push(']');
        let (component, tail) = component(after);
        let tail = tail.trim_start();
        let assigns = tail.starts_with('=') && !tail.starts_with("==");
        if !assigns {
            if ["+=", "-=", "*=", "/=", "|=", "&=", "++", "--"].iter().any(|op| tail.starts_with(op)) {
                return Err(format!("{name} is changed in place"));
            }
            out.push_str(&buffer.widened(&element));
            return Ok(after);
        }
        let (value, rest) =
            tail[1..].split_once(';').ok_or_else(|| format!("a store to {name} has no end"))?;
        let mut converted = String::new();
        self.text(value.trim(), &mut converted)?;
        let mut place = String::new();
        self.text(component, &mut place)?;
        let _ = write!(out, "{element}{place} = {};", buffer.narrowed(&converted, !component.is_empty()));
        Ok(rest)
    }
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Splits text that begins with a bracket into what the brackets contain, and what follows them.
fn bracketed(text: &str) -> Option<(&str, &str)> {
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if depth == 0 {
            return Some((text.get(1..at)?, text.get(at + 1..)?));
        }
    }
    None
}

/// Splits off the component of a vector that `text` begins with, `.x` or `[i]`; empty if there is none.
fn component(text: &str) -> (&str, &str) {
    if text.starts_with('[')
        && let Some((inside, _)) = bracketed(text)
    {
        return text.split_at(inside.len() + 2);
    }
    match text.strip_prefix('.') {
        Some(name) => text.split_at(1 + name.find(|c| !is_name(c)).unwrap_or(name.len())),
        None => ("", text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "alias E = f32;\nalias T = vec4<E>;\n\
        @group(0) @binding(0) var<storage, read> input: array<T>;\n\
        @group(0) @binding(1) var<storage, read_write> output: array<u32>;\n";

    #[track_caller]
    fn check(is_half: fn(u32) -> bool, body: &str, expected: &str) {
        let text = rewrite(&format!("{HEAD}{body}\n"), is_half).unwrap();
        assert!(text.contains(expected), "{text}\ndoes not contain {expected}");
    }

    #[test]
    fn loads_widen_and_stores_round() {
        check(|_| true, "", "var<storage, read> input: array<vec4<f16>>;");
        check(|_| true, "", "var<storage, read_write> output: array<f16>;");
        check(|_| true, "let v = input[at + 1u].x;", "let v = vec4<f32>(input[at + 1u]).x;");
        check(|b| b == 1, "let v = input[at];", "let v = input[at];");
        check(|_| true, "let v = output[i];", "let v = bitcast<u32>(f32(output[i]));");
        check(
            |_| true,
            "output[i] = bitcast<u32>(input[j].x);",
            "output[i] = to_halves_1(bitcast<f32>(bitcast<u32>(vec4<f32>(input[j]).x)));",
        );
        // An index that is an element itself, and a comparison.
        check(
            |b| b == 0,
            "x = input[u32(input[i][k])] == y;",
            "vec4<f32>(input[u32(vec4<f32>(input[i])[k])]) == y;",
        );
        check(|_| true, "p.input[0] = input_2[1]; // input[2]", "p.input[0] = input_2[1]; \n");
    }

    #[test]
    fn components_are_stored_one_by_one() {
        let head = HEAD.replace("read> input", "read_write> input");
        let text = rewrite(&format!("{head}input[i].y = 1.0; input[i][k] = 2.0;\n"), |b| b == 0).unwrap();
        assert!(text.contains("input[i].y = to_halves_1(1.0); input[i][k] = to_halves_1(2.0);"), "{text}");
    }

    #[test]
    fn other_forms_are_errors() {
        let error = |text: &str| rewrite(&format!("{HEAD}{text}\n"), |_| true).unwrap_err();
        assert_eq!(error("output[i] += 1u;"), "output is changed in place");
        assert_eq!(
            error("@group(0) @binding(2) var<storage, read> points: array<f32, 8>;"),
            "points is an array of f32, 8, which has no 16-bit form"
        );
    }
}
