//! The definitions, imports and mentioned paths of one file.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, ItemUse, UseTree};

use crate::path::ModulePath;

/// The names of one module: a file, or a `mod x { … }` in it.
#[derive(Default)]
pub(crate) struct Scope {
    /// Items that are defined here, including macros.
    pub(crate) items: BTreeSet<String>,
    /// Names that `use` binds, with their paths.
    pub(crate) names: BTreeMap<String, Vec<String>>,
    /// Paths of `use path::*`.
    pub(crate) globs: Vec<Vec<String>>,
    /// Paths that `use`, types, expressions, patterns and macros mention, with their lines. Paths of macro calls end
    /// with `!`.
    pub(crate) mentions: Vec<(Vec<String>, usize)>,
}

/// A `mod x;`.
pub(crate) struct Declared {
    pub(crate) module: ModulePath,
    /// The file's path in `#[path]`, relative to the folder of the declaring file.
    pub(crate) path: Option<String>,
    pub(crate) test_only: bool,
}

/// The names of one file outside of test code, and all modules that it declares.
#[derive(Default)]
pub(crate) struct Collector {
    pub(crate) scopes: BTreeMap<ModulePath, Scope>,
    pub(crate) declared: Vec<Declared>,
    /// Names of `macro_rules!` definitions, with the modules that contain them.
    pub(crate) macros: BTreeMap<String, ModulePath>,
    current: ModulePath,
}

impl Collector {
    pub(crate) fn collect(file: &syn::File, module: &ModulePath) -> Self {
        let mut collector = Collector { current: module.clone(), ..Collector::default() };
        collector.scope();
        collector.visit_file(file);
        collector
    }

    fn scope(&mut self) -> &mut Scope {
        self.scopes.entry(self.current.clone()).or_default()
    }

    fn mention(&mut self, path: Vec<String>, line: usize) {
        self.scope().mentions.push((path, line));
    }

    fn import(&mut self, tree: &UseTree, prefix: &[String], line: usize) {
        let extended = |ident: &syn::Ident| [prefix, &[ident.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.import(&path.tree, &extended(&path.ident), line),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.import(tree, prefix, line)),
            UseTree::Glob(_) => self.scope().globs.push(prefix.to_vec()),
            UseTree::Name(name) if name.ident == "self" => {
                self.bind(prefix.last().cloned(), prefix.to_vec(), line)
            }
            UseTree::Name(name) => self.bind(Some(name.ident.to_string()), extended(&name.ident), line),
            UseTree::Rename(rename) => {
                let path = if rename.ident == "self" { prefix.to_vec() } else { extended(&rename.ident) };
                self.bind(Some(rename.rename.to_string()), path, line);
            }
        }
    }

    fn bind(&mut self, name: Option<String>, path: Vec<String>, line: usize) {
        // A name that is bound to itself, as by `use x;`, would resolve to nothing, and hide a name of a glob import.
        if let Some(name) = name.filter(|name| path.len() > 1 || path.first() != Some(name)) {
            self.scope().names.entry(name).or_insert_with(|| path.clone());
        }
        self.mention(path, line);
    }

    /// Records the paths in the tokens of a macro. In a definition, only paths from the crate's root have a known
    /// meaning.
    fn scan(&mut self, tokens: TokenStream, definition: bool) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            match token {
                TokenTree::Group(group) => {
                    // `#[…]` holds no imports.
                    let attribute =
                        group.delimiter() == Delimiter::Bracket && at > 0 && is_punct(&tokens[at - 1], '#');
                    if !attribute {
                        self.scan(group.stream(), definition);
                    }
                    at += 1;
                }
                TokenTree::Ident(first) => {
                    let field = at > 0 && is_punct(&tokens[at - 1], '.');
                    let line = first.span().start().line;
                    let (mut path, next) = path_at(&tokens, at);
                    let call = is_call(&tokens, next);
                    let known = if definition {
                        path[0] == "crate" && path.len() > 1
                    } else {
                        path.len() > 1 || call || path[0].starts_with(char::is_uppercase)
                    };
                    if call {
                        mark_macro(&mut path);
                    }
                    if known && !field {
                        self.mention(path, line);
                    }
                    at = next;
                }
                _ => at += 1,
            }
        }
    }
}

/// The path of identifiers and `::` that starts at `at`, and the index of the token after it.
fn path_at(tokens: &[TokenTree], mut at: usize) -> (Vec<String>, usize) {
    let mut path = Vec::new();
    while let Some(TokenTree::Ident(ident)) = tokens.get(at) {
        path.push(ident.to_string());
        at += 1;
        let colons = tokens.get(at..at + 2).is_some_and(|two| two.iter().all(|token| is_punct(token, ':')));
        if !colons {
            break;
        }
        at += 2;
    }
    (path, at)
}

/// Whether `!` and a group are at `at`, as in a call of a macro.
fn is_call(tokens: &[TokenTree], at: usize) -> bool {
    matches!(tokens.get(at..at + 2), Some([mark, TokenTree::Group(_)]) if is_punct(mark, '!'))
}

fn mark_macro(path: &mut [String]) {
    if let Some(name) = path.last_mut() {
        name.push('!');
    }
}

fn is_punct(token: &TokenTree, char: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == char)
}

/// Whether `#[cfg(test)]` or `#[cfg(all(test, …))]` is among the attributes.
pub(crate) fn is_test_only(attributes: &[Attribute]) -> bool {
    attributes.iter().filter(|attribute| attribute.path().is_ident("cfg")).any(|attribute| {
        let Ok(condition) = attribute.meta.require_list() else { return false };
        let text: String = condition.tokens.to_string().split_whitespace().collect();
        text == "test" || text.starts_with("all(test,")
    })
}

fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    let attribute = attributes.iter().find(|attribute| attribute.path().is_ident("path"))?;
    match &attribute.meta.require_name_value().ok()?.value {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
        _ => None,
    }
}

fn attributes_of(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn name_of(item: &Item) -> Option<&syn::Ident> {
    match item {
        Item::Const(item) => Some(&item.ident),
        Item::Enum(item) => Some(&item.ident),
        Item::Fn(item) => Some(&item.sig.ident),
        Item::Macro(item) => item.ident.as_ref(),
        Item::Static(item) => Some(&item.ident),
        Item::Struct(item) => Some(&item.ident),
        Item::Trait(item) => Some(&item.ident),
        Item::TraitAlias(item) => Some(&item.ident),
        Item::Type(item) => Some(&item.ident),
        Item::Union(item) => Some(&item.ident),
        _ => None,
    }
}

impl<'ast> Visit<'ast> for Collector {
    fn visit_item(&mut self, item: &'ast Item) {
        if let Item::Mod(ItemMod { content: None, attrs, ident, .. }) = item {
            let module = self.current.child(&ident.to_string());
            let (path, test_only) = (path_attribute(attrs), is_test_only(attrs));
            self.declared.push(Declared { module, path, test_only });
            return;
        }
        if is_test_only(attributes_of(item)) {
            return;
        }
        if let Some(name) = name_of(item) {
            self.scope().items.insert(name.to_string());
        }
        visit::visit_item(self, item);
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        let outside = self.current.clone();
        self.current = outside.child(&item.ident.to_string());
        self.scope();
        visit::visit_item_mod(self, item);
        self.current = outside;
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if item.leading_colon.is_none() {
            self.import(&item.tree, &[], item.span().start().line);
        }
    }

    fn visit_item_macro(&mut self, item: &'ast syn::ItemMacro) {
        match &item.ident {
            Some(name) if item.mac.path.is_ident("macro_rules") => {
                self.macros.insert(name.to_string(), self.current.clone());
                self.scan(item.mac.tokens.clone(), true);
            }
            _ => self.visit_macro(&item.mac),
        }
    }

    fn visit_macro(&mut self, mac: &'ast syn::Macro) {
        let mut path: Vec<String> =
            mac.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        mark_macro(&mut path);
        self.mention(path, mac.path.span().start().line);
        self.scan(mac.tokens.clone(), false);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            let segments = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            self.mention(segments, path.span().start().line);
        }
        visit::visit_path(self, path);
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        let attributes = match item {
            syn::ImplItem::Const(item) => &item.attrs,
            syn::ImplItem::Fn(item) => &item.attrs,
            syn::ImplItem::Type(item) => &item.attrs,
            _ => return visit::visit_impl_item(self, item),
        };
        if !is_test_only(attributes) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if !is_test_only(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        if !is_test_only(&local.attrs) {
            visit::visit_local(self, local);
        }
    }

    /// Attributes and `pub(in …)` import nothing.
    fn visit_attribute(&mut self, _: &'ast Attribute) {}
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}
}
