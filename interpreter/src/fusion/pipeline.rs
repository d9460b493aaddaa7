//! The passes, in their order.

use std::sync::Arc;

use delegraph_core::error::{Error, Result};
use delegraph_core::graph::{Model, NodeId, Subgraph};
use delegraph_core::{Composite, OpResolver};

use super::composite::{Call, CompositeFusion, Outcome, try_apart};
use super::inline::{Inlined, Inliner};
use super::known::Known;
use super::report::{Change, FusionReport, Left, Size};
use super::rewriter::Rewriter;
use super::store::Store;
use super::{clean::clean, composites, fold, patterns, variables};
use crate::resolvers::BuiltinOpResolver;

/// Replaces a pattern of nodes by fewer: a plug-in of a [`Pipeline`].
pub trait PatternFusion: Send + Sync {
    /// Its name, for reports and for [`Pipeline::skip`].
    fn name(&self) -> &str;

    /// Rewrites what ends in `node`, if that is its pattern; returns whether it did. It is asked about every node again
    /// until nothing changes, so it must not rewrite what it made.
    ///
    /// # Errors
    /// Where the pattern is there, but damaged. The whole pipeline ends with it.
    fn rewrite(&self, graph: &mut Rewriter<'_>, node: NodeId) -> Result<bool>;
}

/// No graph needs more rounds; a plug-in that undoes what another does would.
const ROUNDS: usize = 12;

/// Passes over a model. See [the module](super).
#[derive(Clone)]
pub struct Pipeline {
    composites: Vec<Arc<dyn CompositeFusion>>,
    patterns: Vec<Arc<dyn PatternFusion>>,
    skipped: Vec<String>,
    allow_custom: bool,
    keep_composites: bool,
    stateful: bool,
    hybrid: bool,
}

/// What a [`Pipeline`] made of a model.
#[derive(Debug, Clone)]
pub struct Fused {
    /// The model.
    pub model: Model,
    /// What was done to it.
    pub report: FusionReport,
}

impl Default for Pipeline {
    fn default() -> Self {
        Self::new()
    }
}

impl Pipeline {
    /// All passes and fusions that there are, without custom ops: LiteRT runs what it ran before.
    pub fn new() -> Self {
        Pipeline { composites: composites::all(), patterns: patterns::all(), ..Self::empty() }
    }

    /// The passes without any fusions, for those that [`Pipeline::composite`] and [`Pipeline::pattern`] add.
    pub fn empty() -> Self {
        Pipeline {
            composites: Vec::new(),
            patterns: Vec::new(),
            skipped: Vec::new(),
            allow_custom: false,
            keep_composites: false,
            stateful: false,
            hybrid: false,
        }
    }

    /// Adds a fusion of marked composites. One of the same name that is there already is asked after it.
    #[must_use]
    pub fn composite(mut self, fusion: impl CompositeFusion + 'static) -> Self {
        self.composites.insert(0, Arc::new(fusion));
        self
    }

    /// Adds a fusion of patterns, before those that are there.
    #[must_use]
    pub fn pattern(mut self, fusion: impl PatternFusion + 'static) -> Self {
        self.patterns.insert(0, Arc::new(fusion));
        self
    }

    /// Leaves out a pass or a fusion: `composites`, `freeze-variables`, `inline`, `fold-constants`, `patterns`, `restamp`,
    /// or the name of a composite or a pattern.
    #[must_use]
    pub fn skip(mut self, name: &str) -> Self {
        self.skipped.push(name.to_owned());
        self
    }

    /// Also fuses into custom ops of this project where there is no builtin op, such as layer normalization. Delegraph has
    /// kernels for them; other runtimes do not load such a file.
    #[must_use]
    pub fn allow_custom(mut self) -> Self {
        if !std::mem::replace(&mut self.allow_custom, true) {
            self.composites.extend(composites::custom());
            self.patterns.extend(patterns::custom());
        }
        self
    }

    /// Leaves composites that no fusion takes as they are, for delegates that know them, instead of inlining their bodies.
    #[must_use]
    pub fn keep_composites(mut self) -> Self {
        self.keep_composites = true;
        self
    }

    /// Puts fused recurrent ops into the graph itself. Their state then lasts from one invocation to the next until it is
    /// reset, as it does in files of TensorFlow's converter. Otherwise such an op is the body of its composite, whose
    /// state begins anew in every call, as that of the ops did which it takes the place of.
    #[must_use]
    pub fn stateful(mut self) -> Self {
        self.stateful = true;
        self
    }

    /// Also fuses recurrent layers of int8 weights, into ops that multiply in integers: what they get is quantized on the
    /// fly, so that results differ by more than rounding.
    #[must_use]
    pub fn allow_hybrid(mut self) -> Self {
        if !std::mem::replace(&mut self.hybrid, true) {
            self.composites.extend(composites::recurrent(true));
        }
        self
    }

    /// How much further than [`Difference::allowed`](super::Difference::allowed) results may be off with what is allowed.
    pub fn tolerance(&self) -> f64 {
        if self.hybrid { composites::HYBRID } else { 1.0 }
    }

    /// The names of all passes and fusions, in order.
    pub fn names(&self) -> Vec<String> {
        let mut names = vec!["composites".to_owned()];
        names.extend(self.composites.iter().map(|f| f.name().to_owned()));
        names.extend(["freeze-variables", "inline", "fold-constants", "patterns"].map(str::to_owned));
        names.extend(self.patterns.iter().map(|f| f.name().to_owned()));
        names.push("restamp".to_owned());
        names
    }

    /// Rewrites `model`. The model itself stays what it is.
    ///
    /// # Errors
    /// A composite whose operands or attributes are not what its name promises; what preparing the model would fail with;
    /// a plug-in that made something that is no model, with its name.
    pub fn run(&self, model: &Model) -> Result<Fused> {
        let resolver: Arc<dyn OpResolver> = Arc::new(BuiltinOpResolver::new());
        self.run_keeping(&Arc::new(model.clone()), &resolver, &|_| false)
    }

    /// As [`Pipeline::run`], with these kernels, and without touching composites of which `keep` says so.
    ///
    /// # Errors
    /// As for [`Pipeline::run`].
    pub fn run_keeping(
        &self,
        model: &Arc<Model>,
        resolver: &Arc<dyn OpResolver>,
        keep: &dyn Fn(&Composite<'_>) -> bool,
    ) -> Result<Fused> {
        let report = FusionReport { before: Size::of(model), ..Default::default() };
        let known = Known::of(model, resolver, false)?;
        let mut run = Run { pipeline: self, resolver, model: model.clone(), known, report };
        if self.runs("composites") {
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

    fn runs(&self, name: &str) -> bool {
        !self.skipped.iter().any(|skipped| skipped == name)
    }
}

/// A pipeline on its way.
struct Run<'p> {
    pipeline: &'p Pipeline,
    resolver: &'p Arc<dyn OpResolver>,
    model: Arc<Model>,
    known: Known,
    report: FusionReport,
}

impl Run<'_> {
    /// Goes on with other subgraphs, after removing what nobody needs, and checking and inferring all.
    fn accept(&mut self, pass: &str, store: Store, mut subgraphs: Vec<Subgraph>) -> Result<()> {
        let joined = store.joined(&self.model);
        subgraphs.extend(store.subgraphs);
        let (base, subgraphs) = clean(&self.model, subgraphs);
        self.verify(pass, base.with_subgraphs(joined, subgraphs))
    }

    fn verify(&mut self, pass: &str, model: Result<Model>) -> Result<()> {
        let checked = model.and_then(|model| {
            let model = Arc::new(model);
            Ok((Known::of(&model, self.resolver, false)?, model))
        });
        let (known, model) = checked.map_err(|e| {
            Error::State(format!("the pass \"{pass}\" made a model that cannot be prepared: {e}"))
        })?;
        (self.model, self.known) = (model, known);
        Ok(())
    }

    fn composites(&mut self, keep: &dyn Fn(&Composite<'_>) -> bool) -> Result<()> {
        let model = self.model.clone();
        let mut store = Store::new(&model);
        let (mut subgraphs, mut changed) = (Vec::new(), false);
        for index in 0..model.subgraphs.len() {
            let mut graph = Rewriter::new(&model, index, &self.known, &mut store);
            for id in graph.nodes() {
                let Some(call) = Call::of(&graph, id) else { continue };
                let kept = Composite {
                    name: &call.name,
                    version: call.version,
                    bytes: &call.bytes,
                    body: call.body,
                };
                if keep(&kept) || !self.pipeline.runs(&call.name) {
                    continue;
                }
                let mut reason = None;
                for fusion in self.pipeline.composites.iter().filter(|f| f.name() == call.name) {
                    let at = |e: Error| e.at(model.locate(index, id));
                    fusion.verify_signature(&call, &graph).map_err(at)?;
                    let outcome = match try_apart(&**fusion, &call, &graph, self.resolver).map_err(at)? {
                        Outcome::Fused => fusion.rewrite(&call, &mut graph).map_err(at)?,
                        left => left,
                    };
                    let tensor = call.node.outputs.first().and_then(|t| graph.tensor(*t));
                    let tensor = tensor.map_or_else(String::new, |t| t.name.to_string());
                    match outcome {
                        Outcome::Fused => {
                            let (from, to) = graph.taken();
                            let pass = call.name.clone();
                            self.report.changes.push(Change { pass, subgraph: index, tensor, from, to });
                            (changed, reason) = (true, None);
                            break;
                        }
                        Outcome::Left(why) => {
                            let composite = call.name.clone();
                            reason = Some(Left { composite, subgraph: index, tensor, reason: why });
                        }
                    }
                }
                self.report.left.extend(reason);
            }
            subgraphs.push(graph.finish());
        }
        if changed { self.accept("composites", store, subgraphs) } else { Ok(()) }
    }

    fn freeze(&mut self) -> Result<()> {
        let Some((subgraphs, reads)) = variables::freeze(&self.model) else { return Ok(()) };
        let store = Store::new(&self.model);
        self.accept("freeze-variables", store, subgraphs)?;
        self.note("freeze-variables", vec![format!("READ_VARIABLE × {reads}")], vec!["constants".into()]);
        Ok(())
    }

    fn inline(&mut self, keep: &dyn Fn(&Composite<'_>) -> bool) -> Result<()> {
        let model = self.model.clone();
        // A body with state that is one op is what a recurrent fusion left: its state begins anew in every call.
        let fused = |c: &Composite<'_>| {
            let body = c.body.and_then(|body| model.subgraphs.get(body));
            body.is_some_and(|g| g.nodes.len() == 1 && g.tensors.iter().any(|t| t.is_variable))
        };
        let (stateful, keeps) = (self.pipeline.stateful, self.pipeline.keep_composites);
        let plain = |c: &Composite<'_>, _| !keeps && !keep(c) && self.pipeline.runs(c.name) && !fused(c);
        let recurrent = |c: &Composite<'_>, _| stateful && !keep(c) && fused(c);
        let mut names = Vec::new();
        let mut inlined: Option<Model> = None;
        let passes = [
            Inliner { composite: &plain, functions: true, state: false },
            Inliner { composite: &recurrent, functions: false, state: true },
        ];
        for inliner in passes {
            let result = inliner.run(inlined.as_ref().unwrap_or(&model))?;
            if let Some(Inlined { model, origins, .. }) = result {
                names.extend(origins.into_iter().flatten().map(|o| format!("composite \"{}\"", o.name)));
                inlined = Some(model);
            }
        }
        let Some(inlined) = inlined else { return Ok(()) };
        let (base, subgraphs) = clean(&model, inlined.subgraphs);
        self.verify("inline", base.with_subgraphs(None, subgraphs))?;
        self.note("inline", names, vec!["their bodies".into()]);
        Ok(())
    }

    fn fold(&mut self) -> Result<()> {
        let model = self.model.clone();
        let known = Known::of(&model, self.resolver, true)?;
        let mut store = Store::new(&model);
        let (mut subgraphs, mut changes) = (Vec::new(), Vec::new());
        for index in 0..model.subgraphs.len() {
            let mut graph = Rewriter::new(&model, index, &known, &mut store);
            changes.extend(fold::fold(&model, &known, index, &mut graph));
            subgraphs.push(graph.finish());
        }
        if changes.is_empty() {
            return Ok(());
        }
        self.report.changes.append(&mut changes);
        self.accept("fold-constants", store, subgraphs)
    }

    fn patterns(&mut self) -> Result<()> {
        for _ in 0..ROUNDS {
            let mut changed = false;
            for pattern in &self.pipeline.patterns {
                if self.pipeline.runs(pattern.name()) {
                    changed |= self.pattern(&**pattern)?;
                }
            }
            if !changed {
                break;
            }
        }
        Ok(())
    }

    fn pattern(&mut self, pattern: &dyn PatternFusion) -> Result<bool> {
        let model = self.model.clone();
        let mut store = Store::new(&model);
        let (mut subgraphs, mut changes) = (Vec::new(), Vec::new());
        for index in 0..model.subgraphs.len() {
            let mut graph = Rewriter::new(&model, index, &self.known, &mut store);
            for id in graph.nodes() {
                let output = graph.node(id).and_then(|n| n.outputs.first()).copied();
                if pattern.rewrite(&mut graph, id)? {
                    let (from, to) = graph.taken();
                    let tensor =
                        output.and_then(|t| graph.tensor(t)).map_or_else(String::new, |t| t.name.to_string());
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
