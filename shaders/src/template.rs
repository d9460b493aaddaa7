//! The template layer: renders plain WGSL from a kernel source and the values that specialize it.
//!
//! A source is WGSL with lines that begin with `#` and with `{{…}}` substitutions of a name or of an
//! [expression](crate::expression) of integers:
//!
//! ```text
//! #include "divide"            the text of wgsl/include/divide.wgsl
//! #if NAME && i * 4 < N
//! #else
//! #endif
//! #for i in 0..N / 2           repeats its lines with {{i}} = 0, 1, …
//! #endfor
//! ```
//!
//! Loops unroll register tiles: many drivers move an array that is indexed by a variable out of registers.
//! A name without a value is an error, so a misspelt flag is not a dead branch.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::ShaderError;
use crate::expression::evaluate;

/// A kernel source with the values that specialize it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template {
    kernel: &'static str,
    source: &'static str,
    values: BTreeMap<&'static str, Value>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    Number(u32),
    /// Text, with the short name that replaces it in the key.
    Text {
        name: Cow<'static, str>,
        text: Cow<'static, str>,
    },
}

impl Template {
    pub(crate) fn new(kernel: &'static str, source: &'static str) -> Self {
        Self { kernel, source, values: BTreeMap::new() }
    }

    pub(crate) fn number(mut self, name: &'static str, value: u32) -> Self {
        self.values.insert(name, Value::Number(value));
        self
    }

    pub(crate) fn flag(self, name: &'static str, value: bool) -> Self {
        self.number(name, u32::from(value))
    }

    /// Sets a value that is a piece of WGSL. Equal short names must mean equal texts.
    pub(crate) fn text(
        mut self,
        name: &'static str,
        short: impl Into<Cow<'static, str>>,
        text: impl Into<Cow<'static, str>>,
    ) -> Self {
        self.values.insert(name, Value::Text { name: short.into(), text: text.into() });
        self
    }

    /// Returns the kernel with its values, such as `cast:FROM=f32,TO=i32,VEC4=1`.
    pub(crate) fn key(&self) -> String {
        let mut key = String::from(self.kernel);
        for (i, (name, value)) in self.values.iter().enumerate() {
            let separator = if i == 0 { ':' } else { ',' };
            // Writing into a String cannot fail.
            let _ = match value {
                Value::Number(n) => write!(key, "{separator}{name}={n}"),
                Value::Text { name: short, .. } => write!(key, "{separator}{name}={short}"),
            };
        }
        key
    }

    /// Returns the WGSL text.
    pub(crate) fn render(&self) -> Result<String, ShaderError> {
        let mut out = String::with_capacity(self.source.len() * 2);
        let lines: Vec<Line> =
            self.source.lines().enumerate().map(|(i, text)| Line { number: i + 1, text }).collect();
        self.block(&lines, &mut Vec::new(), &mut out)?;
        Ok(out)
    }

    fn block<'a>(
        &self,
        lines: &[Line<'a>],
        counters: &mut Vec<(&'a str, i64)>,
        out: &mut String,
    ) -> Result<(), ShaderError> {
        let mut rest = lines;
        while let Some((line, after)) = rest.split_first() {
            rest = after;
            let Some(directive) = line.text.trim_start().strip_prefix('#') else {
                self.substitute(*line, line.text, counters, out)?;
                out.push('\n');
                continue;
            };
            let (word, argument) = directive.split_once(' ').unwrap_or((directive, ""));
            match word {
                "include" => {
                    let name = argument.trim().trim_matches('"');
                    let text = include(name)
                        .ok_or_else(|| self.error(*line, format!("unknown snippet {name:?}")))?;
                    let lines: Vec<Line> =
                        text.lines().map(|text| Line { number: line.number, text }).collect();
                    self.block(&lines, &mut Vec::new(), out)?;
                }
                "if" => {
                    let (body, otherwise, after) = self.split(*line, rest, "if", "endif")?;
                    let chosen =
                        if self.number_of(*line, argument, counters)? != 0 { body } else { otherwise };
                    self.block(chosen, counters, out)?;
                    rest = after;
                }
                "for" => {
                    let (body, _, after) = self.split(*line, rest, "for", "endfor")?;
                    let (name, range) = argument
                        .split_once(" in ")
                        .ok_or_else(|| self.error(*line, "expected `#for NAME in A..B`"))?;
                    let (first, end) =
                        range.split_once("..").ok_or_else(|| self.error(*line, "expected a range A..B"))?;
                    let (first, end) =
                        (self.number_of(*line, first, counters)?, self.number_of(*line, end, counters)?);
                    for i in first..end {
                        counters.push((name.trim(), i));
                        self.block(body, counters, out)?;
                        counters.pop();
                    }
                    rest = after;
                }
                _ => return Err(self.error(*line, format!("unknown directive #{word}"))),
            }
        }
        Ok(())
    }

    /// Splits the lines after an opening directive into its body, its `#else` part and the rest.
    #[allow(clippy::type_complexity)]
    fn split<'s, 'a>(
        &self,
        opening: Line<'_>,
        lines: &'s [Line<'a>],
        open: &str,
        close: &str,
    ) -> Result<(&'s [Line<'a>], &'s [Line<'a>], &'s [Line<'a>]), ShaderError> {
        let mut depth = 0_usize;
        let mut otherwise = None;
        for (i, line) in lines.iter().enumerate() {
            let Some(directive) = line.text.trim_start().strip_prefix('#') else { continue };
            let word = directive.split_whitespace().next().unwrap_or("");
            if word == open {
                depth += 1;
            } else if word == close {
                if depth == 0 {
                    let (inner, after) = lines.split_at(i);
                    let (body, other) = match otherwise {
                        Some(at) => (inner.split_at(at).0, inner.split_at(at + 1).1),
                        None => (inner, &inner[..0]),
                    };
                    return Ok((body, other, after.split_first().map_or(&[][..], |(_, after)| after)));
                }
                depth -= 1;
            } else if word == "else" && open == "if" && depth == 0 {
                otherwise = Some(i);
            }
        }
        Err(self.error(opening, format!("#{open} without #{close}")))
    }

    fn number_of(&self, line: Line<'_>, text: &str, counters: &[(&str, i64)]) -> Result<i64, ShaderError> {
        let lookup = |name: &str| {
            let counter = counters.iter().rev().find(|(counter, _)| *counter == name);
            counter.map(|(_, value)| *value).or_else(|| match self.values.get(name) {
                Some(Value::Number(n)) => Some(i64::from(*n)),
                _ => None,
            })
        };
        evaluate(text, &lookup).map_err(|why| self.error(line, why))
    }

    fn substitute(
        &self,
        line: Line<'_>,
        text: &str,
        counters: &[(&str, i64)],
        out: &mut String,
    ) -> Result<(), ShaderError> {
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("{{") {
            out.push_str(before);
            let (name, after) = after.split_once("}}").ok_or_else(|| self.error(line, "{{ without }}"))?;
            rest = after;
            match self.values.get(name.trim()) {
                Some(Value::Text { text, .. }) => out.push_str(text),
                _ => {
                    let _ = write!(out, "{}", self.number_of(line, name, counters)?);
                }
            }
        }
        out.push_str(rest);
        Ok(())
    }

    fn error(&self, line: Line<'_>, why: impl Into<String>) -> ShaderError {
        ShaderError::Template { kernel: self.kernel, line: line.number, why: why.into() }
    }
}

/// A line of a source with its number, from 1.
#[derive(Clone, Copy)]
struct Line<'a> {
    number: usize,
    text: &'a str,
}

/// Returns the text of a shared snippet.
fn include(name: &str) -> Option<&'static str> {
    Some(match name {
        "angles" => include_str!("wgsl/include/angles.wgsl"),
        "conv" => include_str!("wgsl/include/conv.wgsl"),
        "conv_2d_params" => include_str!("wgsl/include/conv_2d_params.wgsl"),
        "conv_begin" => include_str!("wgsl/include/conv_begin.wgsl"),
        "conv_copies" => include_str!("wgsl/include/conv_copies.wgsl"),
        "conv_end" => include_str!("wgsl/include/conv_end.wgsl"),
        "conv_outer_next" => include_str!("wgsl/include/conv_outer_next.wgsl"),
        "conv_pixel" => include_str!("wgsl/include/conv_pixel.wgsl"),
        "conv_next" => include_str!("wgsl/include/conv_next.wgsl"),
        "conv_store" => include_str!("wgsl/include/conv_store.wgsl"),
        "conv_tap" => include_str!("wgsl/include/conv_tap.wgsl"),
        "conv_terms" => include_str!("wgsl/include/conv_terms.wgsl"),
        "depthwise_pixel" => include_str!("wgsl/include/depthwise_pixel.wgsl"),
        "divide" => include_str!("wgsl/include/divide.wgsl"),
        "epilogue" => include_str!("wgsl/include/epilogue.wgsl"),
        "epilogue_params" => include_str!("wgsl/include/epilogue_params.wgsl"),
        "divide_exact" => include_str!("wgsl/include/divide_exact.wgsl"),
        "exact" => include_str!("wgsl/include/exact.wgsl"),
        "fixed" => include_str!("wgsl/include/fixed.wgsl"),
        "fixed_double" => include_str!("wgsl/include/fixed_double.wgsl"),
        "fixed_wide" => include_str!("wgsl/include/fixed_wide.wgsl"),
        "integers" => include_str!("wgsl/include/integers.wgsl"),
        "inverse_root" => include_str!("wgsl/include/inverse_root.wgsl"),
        "item" => include_str!("wgsl/include/item.wgsl"),
        "math" => include_str!("wgsl/include/math.wgsl"),
        "order" => include_str!("wgsl/include/order.wgsl"),
        "kept" => include_str!("wgsl/include/kept.wgsl"),
        "matmul_batch" => include_str!("wgsl/include/matmul_batch.wgsl"),
        "matmul_outer_next" => include_str!("wgsl/include/matmul_outer_next.wgsl"),
        "matmul_params" => include_str!("wgsl/include/matmul_params.wgsl"),
        "matmul_row" => include_str!("wgsl/include/matmul_row.wgsl"),
        "outer_copies" => include_str!("wgsl/include/outer_copies.wgsl"),
        "outer_memory" => include_str!("wgsl/include/outer_memory.wgsl"),
        "outer_place" => include_str!("wgsl/include/outer_place.wgsl"),
        "outer_products" => include_str!("wgsl/include/outer_products.wgsl"),
        "params" => include_str!("wgsl/include/params.wgsl"),
        "rounding" => include_str!("wgsl/include/rounding.wgsl"),
        "power" => include_str!("wgsl/include/power.wgsl"),
        "reduced" => include_str!("wgsl/include/reduced.wgsl"),
        "row_scale" => include_str!("wgsl/include/row_scale.wgsl"),
        "sigmoid" => include_str!("wgsl/include/sigmoid.wgsl"),
        "split" => include_str!("wgsl/include/split.wgsl"),
        "split_tile" => include_str!("wgsl/include/split_tile.wgsl"),
        "walk" => include_str!("wgsl/include/walk.wgsl"),
        "window" => include_str!("wgsl/include/window.wgsl"),
        "walk_on" => include_str!("wgsl/include/walk_on.wgsl"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::Template;

    fn check(source: &'static str, expected: &str) {
        let template = Template::new("test", source)
            .number("N", 2)
            .flag("YES", true)
            .flag("NO", false)
            .text("CODE", "short", "a + b");
        assert_eq!(template.key(), "test:CODE=short,N=2,NO=0,YES=1");
        assert_eq!(template.render().unwrap(), expected);
    }

    fn check_error(source: &'static str, expected: &str) {
        let error = Template::new("test", source).number("N", 2).render().unwrap_err();
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn substitutes_numbers_and_texts() {
        check("x = {{N}} * ({{CODE}});", "x = 2 * (a + b);\n");
    }

    #[test]
    fn chooses_branches() {
        check("#if YES\na\n#else\nb\n#endif\nc", "a\nc\n");
        check("#if NO\na\n#else\nb\n#endif\nc", "b\nc\n");
        check("#if !NO && YES\n#if N == 3\na\n#else\nb\n#endif\n#else\nc\n#endif", "b\n");
    }

    #[test]
    fn unrolls_loops() {
        check(
            "#for i in 0..N\n  #for j in i..N + 2 - 2\nm{{i}}{{2 * j - j}}\n  #endfor\n#endfor",
            "m00\nm01\nm11\n",
        );
    }

    #[test]
    fn errors_name_the_line() {
        check_error("a\n#if TYPO\n#endif", "test: template line 2: unknown name \"TYPO\"");
        check_error("#for i in 0..N", "test: template line 1: #for without #endfor");
        check_error("{{N", "test: template line 1: {{ without }}");
        check_error("#endif", "test: template line 1: unknown directive #endif");
        check_error("#include \"nothing\"", "test: template line 1: unknown snippet \"nothing\"");
    }
}
