//! The lengths of functions.

use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};
use syn::visit::{self, Visit};

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// The line of its `fn`.
    pub line: usize,
    /// Lines from its `fn` to the end of its body.
    pub lines: usize,
}

/// Returns all functions with a body in a file: functions, methods, and functions in the tokens of macros.
///
/// # Errors
/// The text is not Rust.
pub fn functions(text: &str) -> Result<Vec<Function>, String> {
    let file = syn::parse_file(text).map_err(|e| e.to_string())?;
    let mut found = Found(Vec::new());
    found.visit_file(&file);
    Ok(found.0)
}

struct Found(Vec<Function>);

impl Found {
    fn add(&mut self, name: &str, from: Span, to: Span) {
        let line = from.start().line;
        let lines = to.end().line.saturating_sub(line) + 1;
        self.0.push(Function { name: name.to_owned(), line, lines });
    }

    fn add_signature(&mut self, signature: &syn::Signature, body: &syn::Block) {
        self.add(&signature.ident.to_string(), signature.fn_token.span, body.brace_token.span.close());
    }

    /// Adds functions in the tokens of a macro: `fn`, a name or `$name`, and the next braces.
    fn scan(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        for (at, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Group(group) => self.scan(group.stream()),
                TokenTree::Ident(keyword) if *keyword == "fn" => {
                    let name = tokens[at + 1..].iter().find_map(|token| match token {
                        TokenTree::Ident(name) => Some(name.to_string()),
                        _ => None,
                    });
                    let end = tokens[at..].iter().find_map(|token| match token {
                        TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => Some(Some(group)),
                        TokenTree::Punct(punct) if punct.as_char() == ';' => Some(None),
                        _ => None,
                    });
                    if let (Some(name), Some(Some(body))) = (name, end) {
                        self.add(&name, keyword.span(), body.span_close());
                    }
                }
                _ => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for Found {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.add_signature(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.add_signature(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(body) = &item.default {
            self.add_signature(&item.sig, body);
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_macro(&mut self, mac: &'ast syn::Macro) {
        self.scan(mac.tokens.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[(&str, usize, usize)]) {
        let found = functions(text).unwrap();
        let found: Vec<_> = found.iter().map(|f| (f.name.as_str(), f.line, f.lines)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn functions_methods_and_tests_are_measured() {
        check("/// Docs.\nfn f(\n    a: u8,\n) {\n\n    // Comment.\n}", &[("f", 2, 6)]);
        check("impl A {\n    fn f() {\n        fn g() {}\n    }\n}", &[("f", 2, 3), ("g", 3, 1)]);
        check("trait A {\n    fn f();\n    fn g() {\n    }\n}", &[("g", 3, 2)]);
        check("mod tests {\n    #[test]\n    fn f() {\n    }\n}", &[("f", 3, 2)]);
    }

    #[test]
    fn functions_inside_macros_are_measured() {
        check(
            "macro_rules! m { ($name:ident) => {\n    fn $name() {\n    }\n    fn none();\n} }",
            &[("name", 2, 2)],
        );
        check("m! {\n    fn f() -> u8 {\n        1\n    }\n}", &[("f", 2, 3)]);
    }
}
