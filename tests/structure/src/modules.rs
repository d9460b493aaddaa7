//! The modules of a crate, and the imports between its files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::collect::{Collector, Scope};
use crate::path::ModulePath;

/// One file uses a name that another one defines.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Import {
    /// The module of the file that uses the name.
    pub from: ModulePath,
    /// The module of the file that defines it.
    pub to: ModulePath,
    /// File and line of the use.
    pub place: String,
}

/// The modules of one crate, without those for tests.
#[derive(Default)]
pub struct Modules {
    scopes: BTreeMap<ModulePath, Scope>,
    /// Modules that are files, with their files.
    files: BTreeMap<ModulePath, String>,
    macros: BTreeMap<String, ModulePath>,
    test_only: BTreeSet<ModulePath>,
}

/// The target of a path.
struct Target {
    module: ModulePath,
    /// Whether the path names the module itself, not one of its items.
    is_module: bool,
}

impl Modules {
    /// Parses every `.rs` file in a folder of sources and its subfolders.
    ///
    /// # Errors
    /// A file cannot be read, or is not Rust.
    pub fn read(sources: &Path) -> Result<Self, String> {
        let mut files = BTreeMap::new();
        for file in rust_files(sources)? {
            let text = fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
            let name = file.strip_prefix(sources).map_err(|e| e.to_string())?;
            files.insert(name.to_string_lossy().replace('\\', "/"), text);
        }
        Modules::parse(&files)
    }

    /// Parses sources by their paths, without the files of test modules. A file that no `mod x;` declares is taken to
    /// be declared by a macro: its path determines its module.
    ///
    /// # Errors
    /// A file is not Rust.
    pub fn parse(sources: &BTreeMap<String, String>) -> Result<Self, String> {
        let mut modules = Modules::default();
        let by_module: BTreeMap<ModulePath, &String> =
            sources.keys().map(|file| (ModulePath::of_file(file), file)).collect();
        let mut left: BTreeSet<&String> = sources.keys().collect();
        let mut files: Vec<&String> = sources.keys().collect();
        // Parents come before their children.
        files.sort_by_key(|file| ModulePath::of_file(file).0.len());
        for file in files {
            let mut waiting = vec![(file, ModulePath::of_file(file))];
            while let Some((file, module)) = waiting.pop() {
                if !left.remove(file) || modules.is_test_only(&module) {
                    continue;
                }
                for (module, path) in modules.add(file, &sources[file], module)? {
                    let declared = match path {
                        Some(path) => sources.get_key_value(&beside(file, &path)).map(|(file, _)| file),
                        None => by_module.get(&module).copied(),
                    };
                    waiting.extend(declared.map(|file| (file, module)));
                }
            }
        }
        Ok(modules)
    }

    /// Parses one file, and adds its scopes and macros. Returns the modules that it declares, with their `#[path]`;
    /// modules under `#[cfg(test)]` are recorded in `test_only`, and not returned.
    fn add(
        &mut self,
        file: &str,
        text: &str,
        module: ModulePath,
    ) -> Result<Vec<(ModulePath, Option<String>)>, String> {
        let parsed = syn::parse_file(text).map_err(|e| format!("{file}: {e}"))?;
        let collected = Collector::collect(&parsed, &module);
        self.files.insert(module, file.to_owned());
        self.macros.extend(collected.macros);
        for (module, scope) in collected.scopes {
            // `lib.rs` and `main.rs` share the root.
            let known = self.scopes.entry(module).or_default();
            known.items.extend(scope.items);
            known.names.extend(scope.names);
            known.globs.extend(scope.globs);
            known.mentions.extend(scope.mentions);
        }
        let (test_only, declared): (Vec<_>, Vec<_>) =
            collected.declared.into_iter().partition(|d| d.test_only);
        self.test_only.extend(test_only.into_iter().map(|declared| declared.module));
        Ok(declared.into_iter().map(|declared| (declared.module, declared.path)).collect())
    }

    fn is_test_only(&self, module: &ModulePath) -> bool {
        (0..=module.0.len()).any(|len| self.test_only.contains(&ModulePath(module.0[..len].to_vec())))
    }

    /// Every folder with children: modules that have modules in files below them.
    pub fn folders(&self) -> BTreeSet<ModulePath> {
        self.files.keys().filter(|module| !module.0.is_empty()).map(ModulePath::parent).collect()
    }

    /// The files and folders in a folder, by the names of their modules.
    pub fn children(&self, folder: &ModulePath) -> BTreeSet<&str> {
        self.files.keys().filter_map(|module| module.child_of(folder)).collect()
    }

    /// Whether a child of a folder has files below it.
    pub(crate) fn is_folder(&self, folder: &ModulePath, child: &str) -> bool {
        !self.children(&folder.child(child)).is_empty()
    }

    /// All imports between files of the crate.
    pub fn imports(&self) -> BTreeSet<Import> {
        let mut imports = BTreeSet::new();
        for (module, scope) in &self.scopes {
            let from = self.file_of(module);
            let globs =
                scope.globs.iter().filter_map(|path| self.resolve(module, path, &mut BTreeSet::new()));
            let globs = globs.map(|target| (target.module, 1));
            let mentions = scope.mentions.iter().filter_map(|(path, line)| {
                Some((self.resolve(module, path, &mut BTreeSet::new())?.module, *line))
            });
            for (target, line) in globs.chain(mentions) {
                let to = self.file_of(&target);
                if from != to {
                    let place = format!("{}:{line}", self.files.get(&from).map_or("", String::as_str));
                    imports.insert(Import { from: from.clone(), to, place });
                }
            }
        }
        imports
    }

    /// The innermost enclosing module that is a file.
    fn file_of(&self, module: &ModulePath) -> ModulePath {
        let mut at = module.clone();
        while !at.0.is_empty() && !self.files.contains_key(&at) {
            at = at.parent();
        }
        at
    }

    /// The target of a path in a module; `None` outside of the crate. A name without a visible definition in its module
    /// counts as an item of that module.
    fn resolve(
        &self,
        scope: &ModulePath,
        path: &[String],
        seen: &mut BTreeSet<(ModulePath, String)>,
    ) -> Option<Target> {
        let (first, mut rest) = path.split_first()?;
        let mut at = match first.as_str() {
            "crate" => ModulePath::default(),
            "self" => scope.clone(),
            "super" => scope.parent(),
            "Self" => return None,
            name => match self.lookup(scope, name, seen)? {
                Target { module, is_module: true } => module,
                item => return Some(item),
            },
        };
        while let Some((name, after)) = rest.split_first() {
            if name == "super" {
                at = at.parent();
            } else {
                match self.lookup(&at, name, seen) {
                    Some(Target { module, is_module: true }) => at = module,
                    Some(item) => return Some(item),
                    None => return Some(Target { module: at, is_module: false }),
                }
            }
            rest = after;
        }
        Some(Target { module: at, is_module: true })
    }

    /// The meaning of a name in a module.
    fn lookup(
        &self,
        at: &ModulePath,
        name: &str,
        seen: &mut BTreeSet<(ModulePath, String)>,
    ) -> Option<Target> {
        if !seen.insert((at.clone(), name.to_owned())) {
            return None;
        }
        let (name, is_macro) = name.strip_suffix('!').map_or((name, false), |name| (name, true));
        let child = at.child(name);
        if !is_macro && self.scopes.contains_key(&child) {
            return Some(Target { module: child, is_module: true });
        }
        let scope = self.scopes.get(at)?;
        if scope.items.contains(name) {
            return Some(Target { module: at.clone(), is_module: false });
        }
        if let Some(path) = scope.names.get(name) {
            return self.resolve(at, path, seen);
        }
        let through_globs = scope.globs.iter().find_map(|path| {
            let target = self.resolve(at, path, &mut seen.clone())?;
            if target.is_module { self.lookup(&target.module, name, seen) } else { None }
        });
        // The scope of a macro follows from its place in the text, or it is exported at the root.
        let defined = || {
            let module = self.macros.get(name).filter(|_| is_macro || at.0.is_empty())?;
            Some(Target { module: module.clone(), is_module: false })
        };
        through_globs.or_else(defined)
    }
}

/// The path of `name` in the folder of `file`.
fn beside(file: &str, name: &str) -> String {
    file.rsplit_once('/').map_or(name.to_owned(), |(folder, _)| format!("{folder}/{name}"))
}

/// Returns every `.rs` file in a folder and its subfolders, except those named `target` and hidden ones.
///
/// # Errors
/// A folder cannot be read.
pub fn rust_files(folder: &Path) -> Result<Vec<std::path::PathBuf>, String> {
    let mut found = Vec::new();
    let entries = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    for entry in entries {
        let path = entry.map_err(|e| e.to_string())?.path();
        let hidden =
            path.file_name().is_some_and(|name| name == "target" || name.to_string_lossy().starts_with('.'));
        if path.is_dir() && !hidden {
            found.extend(rust_files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
