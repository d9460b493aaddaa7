//! Text from files and numbers, for display.

use std::borrow::Cow;
use std::fmt::{self, Write};

/// Returns `text` on one line, with every character escaped that a terminal would act on or hide: `\n`, `\u{1b}`.
///
/// Names, descriptions and options come from files. Printed unescaped, they could move the cursor, set the title of a
/// window, reorder the surrounding text or add lines. Escaping text that is escaped already changes nothing.
///
/// ```
/// use delegraph_core::printable;
///
/// assert_eq!(printable("conv\u{1b}[2J\n"), r"conv\u{1b}[2J\n");
/// assert_eq!(printable("größe/π"), "größe/π");
/// ```
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, acts)
}

/// Returns a name for a message: [`printable`], and shortened to 80 characters. Converters join the names of all ops
/// that they fuse, and a file may have names of megabytes.
///
/// ```
/// use delegraph_core::types::short_name;
///
/// assert_eq!(short_name("conv\n"), r"conv\n");
/// assert_eq!(short_name(&"x".repeat(100)), "x".repeat(80) + "…");
/// ```
pub fn short_name(name: &str) -> Cow<'_, str> {
    const MAX_CHARS: usize = 80;
    match name.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => Cow::Owned(format!("{}…", printable(name.get(..end).unwrap_or(name)))),
        None => printable(name),
    }
}

/// Returns a number with five significant digits, or all digits if it is whole; in scientific notation if it is very
/// large or small.
///
/// ```
/// use delegraph_core::types::rounded;
///
/// assert_eq!([1.7648837, 0.1 + 0.2, 123456.0].map(rounded), ["1.7649", "0.3", "123456"]);
/// assert_eq!([3.45678912e-7, 1e30, f64::INFINITY].map(rounded), ["3.4568e-7", "1e30", "inf"]);
/// ```
pub fn rounded(value: f64) -> String {
    let short = if value.fract() == 0.0 { value } else { format!("{value:.4e}").parse().unwrap_or(value) };
    let plain = short == 0.0 || !short.is_finite() || (1e-4..1e15).contains(&short.abs());
    if plain { short.to_string() } else { format!("{short:e}") }
}

/// Returns a number with its noun: `1 input`, `2 inputs`, `2 entries`.
///
/// ```
/// use delegraph_core::error::counted;
///
/// assert_eq!(["byte", "body", "key", "class"].map(|noun| counted(2, noun)), ["2 bytes", "2 bodies", "2 keys", "2 classes"]);
/// assert_eq!(counted(1, "class"), "1 class");
/// ```
pub fn counted(n: impl fmt::Display, noun: &str) -> String {
    let n = n.to_string();
    match noun.strip_suffix('y').filter(|stem| !stem.ends_with(['a', 'e', 'o', 'u'])) {
        _ if n == "1" => format!("{n} {noun}"),
        Some(stem) => format!("{n} {stem}ies"),
        None if noun.ends_with('s') => format!("{n} {noun}es"),
        None => format!("{n} {noun}s"),
    }
}

/// As [`printable`], for text of several lines: line breaks and tabs stay.
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| acts(c) && !matches!(c, '\n' | '\t'))
}

/// Returns the JSON document `text` with JSON's escapes for all that [`printable`] escapes; JSON itself requires those
/// below U+0020 only. The document means the same.
///
/// ```
/// use delegraph_core::types::printable_json;
///
/// assert_eq!(printable_json("[\"a\u{9b}31m\"]\n".into()), "[\"a\\u009b31m\"]\n");
/// ```
pub fn printable_json(text: String) -> String {
    // Apart from the layout, such characters are in strings only.
    let escapes = |c: char| acts(c) && !matches!(c, '\n' | '\t');
    if !text.chars().any(escapes) {
        return text;
    }
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if !escapes(c) {
            escaped.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            // Writing into a String cannot fail.
            let _ = write!(escaped, "\\u{unit:04x}");
        }
    }
    escaped
}

/// Whether [`printable`] escapes `c`.
pub fn is_escaped(c: char) -> bool {
    acts(c)
}

/// Passes formatted text through [`printable`].
pub(crate) struct Printable<'a, W>(pub(crate) &'a mut W);

impl<W: Write> Write for Printable<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write_str(&printable(text))
    }
}

/// Passes formatted text through [`printable_lines`].
pub(crate) struct PrintableLines<'a, W>(pub(crate) &'a mut W);

impl<W: Write> Write for PrintableLines<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write_str(&printable_lines(text))
    }
}

fn escaped(text: &str, escapes: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(&escapes) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if escapes(c) {
            escaped.extend(c.escape_default());
        } else {
            escaped.push(c);
        }
    }
    Cow::Owned(escaped)
}

/// Whether `c` is a control character (C0, DEL, C1), separates lines or paragraphs, changes the direction of text, or
/// is invisible. The joiners U+200C and U+200D stay: scripts and emoji need them.
fn acts(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'
                | '\u{200e}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_a_terminal_acts_on_are_escaped() {
        let check = |text: &str, line: &str, lines: &str| {
            assert_eq!((&*printable(text), &*printable_lines(text)), (line, lines), "{text:?}");
            assert_eq!(printable(line), line, "escaping twice");
        };
        check("plain \"name\" \\ 'x'", "plain \"name\" \\ 'x'", "plain \"name\" \\ 'x'");
        check("\u{1b}]0;title\u{7}", "\\u{1b}]0;title\\u{7}", "\\u{1b}]0;title\\u{7}");
        check("a\r\n\tb", "a\\r\\n\\tb", "a\\r\n\tb");
        check("\u{7f}\u{9b}31m", "\\u{7f}\\u{9b}31m", "\\u{7f}\\u{9b}31m");
        check("a\u{202e}b\u{2028}c", "a\\u{202e}b\\u{2028}c", "a\\u{202e}b\\u{2028}c");
        check("می\u{200c}خواهم", "می\u{200c}خواهم", "می\u{200c}خواهم");
    }
}
