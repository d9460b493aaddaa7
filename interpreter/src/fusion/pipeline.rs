//! The passes, in order.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use delegraph_core::error::{Error, ErrorKind, Result};
use delegraph_core::graph::{Model, Subgraph};
use delegraph_core::kernel::{Budget, Charge};
use delegraph_core::{Composite, OpResolver};
use delegraph_delegate_api::plugin::{FusionKind, FusionLibrary};

use super::composite::{
    Call, CompositeFusion, Outcome, Unresolved, failed, invalid, other_interface, pass, try_apart,
};
use super::known::Known;
use super::library::{LibraryPass, Rewritten};
use super::pattern::PatternFusion;
use super::proof::cause;
use super::report::{Change, FusionReport, Size, Unchanged};
use super::rewriter::Rewriter;
use super::state::Added;
use super::store::Store;
use super::{calls, clean::clean, composites, fold, interface, patterns, report, variables};
use crate::BuiltinOpResolver;
use crate::runtime::{Bounds, Inlined, Inliner, Place, ResourceLimits};

/// Maximum number of rounds. Graphs need fewer; only extensions that undo each other reach it.
const ROUNDS: usize = 12;

/// Passes over a model. See [the module](super).
#[derive(Clone)]
pub struct Pipeline {
    composites: Vec<Arc<dyn CompositeFusion>>,
    patterns: Vec<Arc<dyn PatternFusion>>,
    /// Fusions of libraries.
    composite_passes: Vec<LibraryPass>,
    pattern_passes: Vec<LibraryPass>,
    skipped: Vec<String>,
    allow_custom: bool,
    keep_composites: bool,
    stateful: bool,
    hybrid: bool,
    unresolved: Unresolved,
    limits: ResourceLimits,
}

impl fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let composites: Vec<&str> = self.composites.iter().map(|fusion| fusion.name()).collect();
        let patterns: Vec<&str> = self.patterns.iter().map(|fusion| fusion.name()).collect();
        f.debug_struct("Pipeline")
            .field("composites", &composites)
            .field("patterns", &patterns)
            .field("skipped", &self.skipped)
            .finish_non_exhaustive()
    }
}

/// The result of a [`Pipeline`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Fused {
    /// The model.
    pub model: Model,
    /// The changes.
    pub report: FusionReport,
}

impl Default for Pipeline {
    fn default() -> Self {
        Self::new()
    }
}

impl Pipeline {
    /// Creates a pipeline with all passes and fusions except those that produce custom ops, so that LiteRT can run the
    /// result.
    pub fn new() -> Self {
        Pipeline { composites: composites::all(), patterns: patterns::all(), ..Self::empty() }
    }

    /// Creates a pipeline with the passes but without fusions, for those that [`Pipeline::composite`] and
    /// [`Pipeline::pattern`] add.
    pub fn empty() -> Self {
        Pipeline {
            composites: Vec::new(),
            patterns: Vec::new(),
            composite_passes: Vec::new(),
            pattern_passes: Vec::new(),
            skipped: Vec::new(),
            allow_custom: false,
            keep_composites: false,
            stateful: false,
            hybrid: false,
            unresolved: Unresolved::Error,
            limits: ResourceLimits::default(),
        }
    }

    /// Limits the resources of the passes, and of preparing the models that they produce. All passes together take the
    /// time of one call, and the constants that they add count as memory.
    #[must_use]
    pub fn limits(mut self, limits: ResourceLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Adds a fusion of marked composites. Existing fusions of the same name are tried after it.
    #[must_use]
    pub fn composite(mut self, fusion: impl CompositeFusion + 'static) -> Self {
        self.composites.insert(0, Arc::new(fusion));
        self
    }

    /// Adds a fusion of patterns, which is tried before existing ones.
    #[must_use]
    pub fn pattern(mut self, fusion: impl PatternFusion + 'static) -> Self {
        self.patterns.insert(0, Arc::new(fusion));
        self
    }

    /// Adds the fusions of a library, before existing ones.
    #[must_use]
    pub fn library(mut self, library: &FusionLibrary) -> Self {
        self.composite_passes.splice(0..0, LibraryPass::of(library, FusionKind::Composite));
        self.pattern_passes.splice(0..0, LibraryPass::of(library, FusionKind::Pattern));
        self
    }

    /// As [`Pipeline::composite`].
    pub(super) fn composite_arc(mut self, fusion: Arc<dyn CompositeFusion>) -> Self {
        self.composites.insert(0, fusion);
        self
    }

    /// As [`Pipeline::pattern`].
    pub(super) fn pattern_arc(mut self, fusion: Arc<dyn PatternFusion>) -> Self {
        self.patterns.insert(0, fusion);
        self
    }

    /// Disables a pass or a fusion: `composites`, `freeze-variables`, `inline`, `fold-constants`, `patterns`,
    /// `restamp`, or the name of a composite or a pattern.
    #[must_use]
    pub fn skip(mut self, name: &str) -> Self {
        self.skipped.push(name.to_owned());
        self
    }

    /// Also fuses into custom ops of this project if there is no builtin op, such as layer normalization. Delegraph has
    /// kernels for them; other runtimes cannot load such a file.
    #[must_use]
    pub fn allow_custom(mut self) -> Self {
        if !std::mem::replace(&mut self.allow_custom, true) {
            self.composites.extend(composites::custom());
            self.patterns.extend(patterns::custom());
        }
        self
    }

    /// Keeps composites that no fusion replaces, for delegates that support them, instead of inlining their bodies.
    #[must_use]
    pub fn keep_composites(mut self) -> Self {
        self.keep_composites = true;
        self
    }

    /// Adds fused recurrent ops to the graph itself. Their state then persists between invocations until it is reset,
    /// as in files of TensorFlow's converter. Otherwise such an op is the body of a composite, whose state is reset in
    /// every call, like that of the ops that it replaces. The composite stays where its subgraph can run more than once
    /// per invocation, as in a loop. Composites of the original model with state in their bodies stay as well.
    ///
    /// Without this option, a pass or a fusion that adds state which lasts between invocations is an error.
    #[must_use]
    pub fn stateful(mut self) -> Self {
        self.stateful = true;
        self
    }

    /// Also fuses recurrent layers with int8 weights, into ops that multiply integers. Their activations are quantized
    /// at run time, so results differ by more than rounding.
    #[must_use]
    pub fn allow_hybrid(mut self) -> Self {
        if !std::mem::replace(&mut self.hybrid, true) {
            self.composites.extend(composites::recurrent(true));
        }
        self
    }

    /// Accepts composites that are rewritten into ops without a kernel, which cannot be run and so are not compared
    /// with their bodies. Otherwise such a rewriting is an error.
    #[must_use]
    pub fn allow_unresolved(mut self) -> Self {
        self.unresolved = Unresolved::Allowed;
        self
    }

    /// Returns the factor by which differences may exceed [`Difference::allowed`](super::Difference::allowed) with the
    /// enabled fusions.
    pub fn tolerance(&self) -> f64 {
        if self.hybrid { composites::HYBRID } else { 1.0 }
    }

    /// Returns the names of all passes and fusions, in order.
    pub fn names(&self) -> Vec<String> {
        let mut names = vec!["composites".to_owned()];
        names.extend(self.composite_passes.iter().map(|pass| pass.fusion.name.clone()));
        names.extend(self.composites.iter().map(|f| f.name().to_owned()));
        names.extend(["freeze-variables", "inline", "fold-constants", "patterns"].map(str::to_owned));
        names.extend(self.pattern_passes.iter().map(|pass| pass.fusion.name.clone()));
        names.extend(self.patterns.iter().map(|f| f.name().to_owned()));
        names.push("restamp".to_owned());
        names
    }

    /// Returns the path of the library with the fusion `name`; `None` if it is not from a library.
    pub fn library_of(&self, name: &str) -> Option<&Path> {
        let mut passes = self.composite_passes.iter().chain(&self.pattern_passes);
        passes.find(|pass| pass.fusion.name == name).map(LibraryPass::path)
    }

    /// Rewrites a copy of `model`.
    ///
    /// # Errors
    /// If operands or attributes of a composite do not match its name; the errors of preparing the model;
    /// [`Error::State`] if an extension fails or produces an invalid model, with its name, or if a pass changes inputs,
    /// outputs or signatures, or adds lasting state without [`Pipeline::stateful`].
    pub fn run(&self, model: &Model) -> Result<Fused> {
        let resolver: Arc<dyn OpResolver> = Arc::new(BuiltinOpResolver::new());
        self.run_keeping(&Arc::new(model.clone()), &resolver, &|_| false)
    }

    /// As [`Pipeline::run`], with these kernels, and without changing composites for which `keep` is true.
    ///
    /// # Errors
    /// As [`Pipeline::run`].
    pub fn run_keeping(
        &self,
        model: &Arc<Model>,
        resolver: &Arc<dyn OpResolver>,
        keep: &dyn Fn(&Composite<'_>) -> bool,
    ) -> Result<Fused> {
        let before = Size::of(model);
        let mut run = Run::new(self, Proof::Apart, resolver, model.clone())?;
        (run.own, run.report.before) = (composite_names(model), before);
        if self.runs("composites") {
            run.composite_passes(keep)?;
            run.composites(keep)?;
        }
        if self.runs("freeze-variables") {
            run.freeze()?;
        }
        if self.runs("inline") {
            run.inline(keep)?;
        }
        if self.runs("fold-constants") {
            run.fold()?;
        }
        if self.runs("patterns") {
            run.patterns()?;
        }
        let Run { model, mut report, .. } = run;
        let mut model = Arc::unwrap_or_clone(model);
        if self.runs("restamp") {
            report.versions = model.restamp()?;
        }
        report.after = Size::of(&model);
        Ok(Fused { model, report })
    }

    /// Runs only the fusions, for a library: the application compares the results.
    ///
    /// # Errors
    /// As for [`Pipeline::run`].
    pub(super) fn run_alone(&self, model: Model) -> Result<(Model, FusionReport)> {
        let resolver: Arc<dyn OpResolver> = Arc::new(BuiltinOpResolver::new());
        let model = Arc::new(model);
        let mut run = Run::new(self, Proof::ByApplication, &resolver, model)?;
        run.composites(&|_| false)?;
        run.patterns()?;
        let Run { model, report, .. } = run;
        Ok((Arc::unwrap_or_clone(model), report))
    }

    fn runs(&self, name: &str) -> bool {
        !self.skipped.iter().any(|skipped| skipped == name)
    }
}

/// Whether a composite is first replaced in a separate model, whose results are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Proof {
    Apart,
    ByApplication,
}

/// A running pipeline.
struct Run<'p> {
    pipeline: &'p Pipeline,
    proof: Proof,
    resolver: &'p Arc<dyn OpResolver>,
    model: Arc<Model>,
    /// The names of the composites of the original model.
    own: BTreeSet<String>,
    known: Known,
    report: FusionReport,
    /// The limits of the pipeline, with a deadline for all passes.
    limits: ResourceLimits,
    budget: Arc<Budget>,
    /// The charges for constants that passes added. The model keeps their bytes.
    charges: Vec<Charge>,
}

/// Returns the names of the composites of a model.
fn composite_names(model: &Model) -> BTreeSet<String> {
    let nodes = model.subgraphs().iter().flat_map(|g| g.nodes());
    nodes.filter_map(|node| Some(Composite::of(model, node)?.name.to_owned())).collect()
}

impl<'p> Run<'p> {
    /// Starts the clock, and infers the model.
    fn new(
        pipeline: &'p Pipeline,
        proof: Proof,
        resolver: &'p Arc<dyn OpResolver>,
        model: Arc<Model>,
    ) -> Result<Self> {
        let limits = pipeline.limits.of_call();
        let budget = Budget::new(limits.memory);
        limits.start_clock(&budget);
        let known = Known::of(&model, resolver, false, &limits)?;
        let (own, report, charges) = Default::default();
        Ok(Run { pipeline, proof, resolver, model, own, known, report, limits, budget, charges })
    }
}

impl Run<'_> {
    /// Returns the name of a pass or a fusion in errors. For the fusion of a library, the application adds the names of
    /// the library and the fusion.
    fn who(&self, name: &str) -> String {
        match self.proof {
            Proof::Apart => pass(name),
            Proof::ByApplication => "it".to_owned(),
        }
    }

    /// Continues with other subgraphs, after removing unused nodes and tensors, verifying and inferring.
    fn accept(&mut self, pass: &str, store: Store, mut subgraphs: Vec<Subgraph>) -> Result<()> {
        let joined = store.joined(&self.model).map_err(|e| failed(&self.who(pass), e))?;
        self.charges.push(store.charge);
        subgraphs.extend(store.subgraphs);
        let mut draft = clean(&self.model, subgraphs);
        if let Some(joined) = joined {
            draft.bytes = joined;
        }
        self.verify(&self.who(pass), draft.verify())
    }

    /// Continues with `model`, which `who` made, if it is valid.
    fn verify(&mut self, who: &str, model: Result<Model>) -> Result<()> {
        let checked = model.and_then(|model| {
            let model = Arc::new(model);
            Ok((Known::of(&model, self.resolver, false, &self.limits)?, model))
        });
        let (known, model) = checked.map_err(|e| invalid(who, e))?;
        if let Some(what) = interface::difference(&self.model, &model) {
            return Err(other_interface(who, &what));
        }
        // A library does not know whether the application allows state.
        let checks_state = self.proof == Proof::Apart && !self.pipeline.stateful;
        if let Some(state) = Added::between(&self.model, &model).first().filter(|_| checks_state) {
            let text = "only a pipeline with `stateful` may add state that lasts between invocations";
            return Err(Error::State(format!("{who} added {state}: {text}")));
        }
        (self.model, self.known) = (model, known);
        Ok(())
    }

    fn composites(&mut self, keep: &dyn Fn(&Composite<'_>) -> bool) -> Result<()> {
        let model = self.model.clone();
        let mut store = Store::new(&model, &self.budget);
        let (mut subgraphs, mut fused) = (Vec::new(), BTreeSet::new());
        for index in 0..model.subgraphs().len() {
            let mut graph = Rewriter::new(&model, index, &self.known, &mut store);
            for id in graph.nodes() {
                let Some(call) = Call::of(&graph, id) else { continue };
                if self.keeps(&call, keep) {
                    continue;
                }
                let mut reason = None;
                for fusion in self.pipeline.composites.iter().filter(|f| f.name() == call.name) {
                    let at = |e: Error| e.at(model.locate(index, id));
                    let blame = |e: Error| failed(&self.who(&call.name), e);
                    // A call that violates the signature is a defect of the model.
                    let verified = fusion.verify_signature(&call, &graph);
                    verified.map_err(|e| match e {
                        Error::InvalidNode(text) if !text.starts_with("composite ") => {
                            at(Error::InvalidNode(format!("composite \"{}\": {text}", call.name)))
                        }
                        e if e.kind() == ErrorKind::Invalid => at(e),
                        e => at(blame(e)),
                    })?;
                    graph.check().map_err(|e| at(blame(e)))?;
                    let limits = (&self.limits, self.pipeline.unresolved);
                    let tried = match self.proof {
                        Proof::Apart => {
                            try_apart(&**fusion, &call, &graph, self.resolver, limits, &blame).map_err(at)?
                        }
                        Proof::ByApplication => Outcome::Fused,
                    };
                    let outcome = match tried {
                        Outcome::Fused => {
                            let outcome = fusion.rewrite(&call, &mut graph);
                            graph.check().map_err(|e| at(blame(e)))?;
                            outcome.map_err(|e| at(blame(e)))?
                        }
                        unchanged => unchanged,
                    };
                    let id = call.node.outputs().first().copied();
                    let tensor = id.and_then(|t| graph.tensor(t));
                    let tensor = tensor.map_or_else(String::new, |t| t.name().to_string());
                    let taken = graph.taken();
                    match (outcome, taken) {
                        (Outcome::Fused, Some((from, to))) => {
                            let pass = call.name.clone();
                            self.report.changes.push(Change { pass, subgraph: index, tensor, from, to });
                            fused.insert(call.name.clone());
                            reason = None;
                            break;
                        }
                        (outcome, _) => {
                            let why = match outcome {
                                Outcome::Unchanged(why) => why,
                                Outcome::Fused => {
                                    "its fusion reported a rewriting but changed nothing".into()
                                }
                            };
                            let composite = call.name.clone();
                            reason = Some(Unchanged { composite, subgraph: index, tensor, id, reason: why });
                        }
                    }
                }
                self.report.unchanged.extend(reason);
            }
            subgraphs.push(graph.finish());
        }
        if fused.is_empty() {
            return Ok(());
        }
        let names: Vec<String> = fused.into_iter().collect();
        self.accept(&names.join(", "), store, subgraphs)
    }

    fn freeze(&mut self) -> Result<()> {
        let Some((subgraphs, reads)) = variables::freeze(&self.model) else { return Ok(()) };
        let store = Store::new(&self.model, &self.budget);
        self.accept("freeze-variables", store, subgraphs)?;
        self.note("freeze-variables", vec![format!("READ_VARIABLE × {reads}")], vec!["constants".into()]);
        Ok(())
    }

    fn inline(&mut self, keep: &dyn Fn(&Composite<'_>) -> bool) -> Result<()> {
        let model = self.model.clone();
        // Whether a fusion made the composite, and its body is one op with state. Other composites keep their state, as
        // the model requires that it is reset in every call.
        let made = self.made_composites();
        let fused = |c: &Composite<'_>| {
            let body = c.body.and_then(|body| model.subgraphs().get(body));
            made.contains(c.name)
                && body.is_some_and(|g| g.nodes().len() == 1 && g.tensors().iter().any(|t| t.is_variable()))
        };
        let (stateful, keeps) = (self.pipeline.stateful, self.pipeline.keep_composites);
        let plain = |c: &Composite<'_>, _| !keeps && !keep(c) && self.pipeline.runs(c.name) && !fused(c);
        let limits = &self.limits;
        let bounds = Bounds { nodes: limits.inlined_nodes, earlier: 0, bytes: limits.memory };
        let first =
            Inliner { composite: &plain, functions: true, state: false, earlier: &[], bounds }.run(&model)?;
        // Each inlined copy of a function has its own variables, so calls are counted after functions are inlined.
        let copied = first.as_ref().map_or(&*model, |inlined| &inlined.model);
        let repeated = if stateful { calls::repeated(copied) } else { Vec::new() };
        let once = |place: Place| place.is_some_and(|(s, _)| repeated.get(s) == Some(&false));
        let recurrent = |c: &Composite<'_>, place| stateful && !keep(c) && fused(c) && once(place);
        let second = Inliner { composite: &recurrent, functions: false, state: true, earlier: &[], bounds }
            .run(copied)?;
        self.report.unchanged.extend(report::kept(copied, &repeated, &|c| !keep(c) && fused(c)));
        let mut names = Vec::new();
        let mut inlined: Option<Model> = None;
        for Inlined { model, origins } in first.into_iter().chain(second) {
            names.extend(origins.into_iter().flatten().map(|o| format!("composite \"{}\"", o.name)));
            inlined = Some(model);
        }
        let Some(inlined) = inlined else { return Ok(()) };
        self.verify(&self.who("inline"), clean(&model, inlined.into_draft().subgraphs).verify())?;
        let to = if names.len() == 1 { "its body" } else { "their bodies" };
        self.note("inline", names, vec![to.into()]);
        Ok(())
    }

    /// Returns the names of composites that fusions made, in this run or, by their names, in an earlier one.
    fn made_composites(&self) -> BTreeSet<String> {
        let is_fusion = |name: &str| {
            self.pipeline.composites.iter().any(|fusion| fusion.name() == name)
                || self.pipeline.composite_passes.iter().any(|pass| pass.fusion.name == name)
        };
        let mut names = composite_names(&self.model);
        names.retain(|name| !self.own.contains(name) || composites::is_fused(name, &is_fusion));
        names
    }

    fn fold(&mut self) -> Result<()> {
        let model = self.model.clone();
        let known = Known::of(&model, self.resolver, true, &self.limits)?;
        let mut store = Store::new(&model, &self.budget);
        let (mut subgraphs, mut changes) = (Vec::new(), Vec::new());
        for index in 0..model.subgraphs().len() {
            let mut graph = Rewriter::new(&model, index, &known, &mut store);
            changes.extend(fold::fold(&model, &known, index, &mut graph));
            match graph.check() {
                // Without memory for the constants, the model stays as it is.
                Err(e) if !e.is_interruption() => return Ok(()),
                checked => checked.map_err(|e| failed(&self.who("fold-constants"), e))?,
            }
            subgraphs.push(graph.finish());
        }
        if changes.is_empty() {
            return Ok(());
        }
        self.report.changes.append(&mut changes);
        self.accept("fold-constants", store, subgraphs)
    }

    fn patterns(&mut self) -> Result<()> {
        let mut changed = Vec::new();
        for _ in 0..ROUNDS {
            changed.clear();
            for pass in &self.pipeline.pattern_passes {
                if self.library(pass)? {
                    changed.push(pass.fusion.name.clone());
                }
            }
            for pattern in &self.pipeline.patterns {
                if self.pipeline.runs(pattern.name()) && self.pattern(&**pattern)? {
                    changed.push(pattern.name().to_owned());
                }
            }
            if changed.is_empty() {
                break;
            }
        }
        self.report.unsettled = changed;
        Ok(())
    }

    /// Runs the fusions of composites that libraries have, for names whose composites are not kept.
    fn composite_passes(&mut self, keep: &dyn Fn(&Composite<'_>) -> bool) -> Result<()> {
        for pass in &self.pipeline.composite_passes {
            let model = self.model.clone();
            let nodes = model.subgraphs().iter().flat_map(|g| g.nodes());
            let mut own =
                nodes.filter_map(|n| Composite::of(&model, n)).filter(|c| c.name == pass.fusion.name);
            let first = own.next();
            if first.is_some_and(|first| !keep(&first)) && !own.any(|c| keep(&c)) {
                // Composites that are wrong before the pass are defects of the file, which the fusions of their names
                // report.
                let known = self.wrong_composites(keep);
                if self.library(pass)? {
                    let mut made = self.wrong_composites(keep).into_iter();
                    if let Some((wrong, _)) =
                        made.find(|(wrong, count)| known.get(wrong).is_none_or(|k| k < count))
                    {
                        return Err(invalid(&pass.who(), Error::State(wrong)));
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the reasons why composites violate the signatures of the fusions of their names, and how many do for
    /// each.
    fn wrong_composites(&self, keep: &dyn Fn(&Composite<'_>) -> bool) -> BTreeMap<String, usize> {
        let mut store = Store::new(&self.model, &self.budget);
        let mut wrong = BTreeMap::new();
        for index in 0..self.model.subgraphs().len() {
            let graph = Rewriter::new(&self.model, index, &self.known, &mut store);
            for call in graph.nodes().into_iter().filter_map(|id| Call::of(&graph, id)) {
                if self.keeps(&call, keep) {
                    continue;
                }
                for fusion in self.pipeline.composites.iter().filter(|f| f.name() == call.name) {
                    if let Err(error) = fusion.verify_signature(&call, &graph) {
                        *wrong.entry(cause(error)).or_default() += 1;
                    }
                }
            }
        }
        wrong
    }

    /// Returns whether fusions leave the composite as it is.
    fn keeps(&self, call: &Call, keep: &dyn Fn(&Composite<'_>) -> bool) -> bool {
        let composite = Composite::new(&call.name, call.version).with_bytes(&call.bytes).with_body(call.body);
        keep(&composite) || !self.pipeline.runs(&call.name)
    }

    /// Runs a fusion of a library; returns whether it changed the model.
    fn library(&mut self, pass: &LibraryPass) -> Result<bool> {
        if !self.pipeline.runs(&pass.fusion.name) {
            return Ok(false);
        }
        let Rewritten { model, changes, unchanged } =
            pass.run(&self.model, self.resolver, &self.limits, self.pipeline.unresolved)?;
        // Further rounds report the same composites again.
        let known = &self.report.unchanged;
        let new: Vec<Unchanged> = unchanged.into_iter().filter(|kept| !known.contains(kept)).collect();
        self.report.unchanged.extend(new);
        let Some(model) = model else { return Ok(false) };
        self.verify(&pass.who(), Ok(model))?;
        self.report.changes.extend(changes);
        Ok(true)
    }

    fn pattern(&mut self, pattern: &dyn PatternFusion) -> Result<bool> {
        let model = self.model.clone();
        let mut store = Store::new(&model, &self.budget);
        let (mut subgraphs, mut changes) = (Vec::new(), Vec::new());
        for index in 0..model.subgraphs().len() {
            let mut graph = Rewriter::new(&model, index, &self.known, &mut store);
            for id in graph.nodes() {
                let output = graph.node(id).and_then(|n| n.outputs().first()).copied();
                let blame = |e: Error| failed(&self.who(pattern.name()), e).at(model.locate(index, id));
                let rewritten = pattern.rewrite(&mut graph, id);
                match graph.check() {
                    // Without memory for its constants, the model stays as it is.
                    Err(e) if !e.is_interruption() => return Ok(false),
                    checked => checked.map_err(blame)?,
                }
                let rewritten = rewritten.map_err(blame)?;
                if rewritten && let Some((from, to)) = graph.taken() {
                    let tensor = output
                        .and_then(|t| graph.tensor(t))
                        .map_or_else(String::new, |t| t.name().to_string());
                    changes.push(Change {
                        pass: pattern.name().to_owned(),
                        subgraph: index,
                        tensor,
                        from,
                        to,
                    });
                }
            }
            subgraphs.push(graph.finish());
        }
        if changes.is_empty() {
            return Ok(false);
        }
        self.accept(pattern.name(), store, subgraphs)?;
        self.report.changes.append(&mut changes);
        Ok(true)
    }

    fn note(&mut self, pass: &str, from: Vec<String>, to: Vec<String>) {
        let change = Change { pass: pass.into(), subgraph: 0, tensor: String::new(), from, to };
        self.report.changes.push(change);
    }
}
