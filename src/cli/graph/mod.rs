//! `graph`: a picture of a model's graph, coloured by the runner of each node.

use std::collections::{HashSet, VecDeque};
use std::path::{Path, PathBuf};

use clap::builder::{PathBufValueParser, TypedValueParser};
use delegraph::Interpreter;
use delegraph::core::printable;
use delegraph::documents::Runners;
use serde::Serialize;

use super::delegates::Engine;
use super::failure::{Exit, Failure};
use super::files;
use super::model::ModelArgument;
use super::numbers::{ANY, whole};
use super::output::{Document, Output};
use super::text::{plural, shown};
use scene::{Look, Rest, Scene};
use svg::Links;

mod dot;
mod layout;
mod scene;
mod svg;

/// Draw the graph, with the partitions of delegates coloured
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    model: ModelArgument,
    /// The picture, by the ending of its name: .svg, .html (which zooms, searches, and has the subgraphs that
    /// nodes call), or .dot for Graphviz. Without it,
    /// the graph for Graphviz goes to standard output
    #[arg(short, long, value_name = "FILE", value_parser = file())]
    output: Option<PathBuf>,
    /// Which subgraph
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole::<usize>(0..=ANY), allow_negative_numbers = true)]
    subgraph: usize,
    #[command(flatten)]
    engine: Engine,
}

#[derive(Clone, Copy)]
enum Format {
    Svg,
    Html,
    Dot,
}

impl Format {
    fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "svg" => Some(Format::Svg),
            "html" | "htm" => Some(Format::Html),
            "dot" | "gv" => Some(Format::Dot),
            _ => None,
        }
    }

    /// Returns the picture of the first of `scenes`; a page has all of them, and nodes link to the subgraphs that they
    /// call.
    fn write(self, scenes: &[Scene]) -> String {
        let first = scenes.first();
        match self {
            Format::Svg => first.map_or_else(String::new, |scene| svg::svg(scene, Links::None)),
            Format::Dot => first.map_or_else(String::new, dot::dot),
            Format::Html => page(scenes),
        }
    }
}

fn page(scenes: &[Scene]) -> String {
    let graph = |scene: &Scene| {
        let (anchor, title) = (svg::anchor(scene.subgraph), svg::escape(&scene.title));
        let picture = svg::svg(scene, Links::Anchors);
        format!("<div class=\"graph\" id=\"{anchor}\" data-title=\"{title}\">\n{picture}</div>\n")
    };
    let title = scenes.first().map_or_else(String::new, |scene| svg::escape(&scene.title));
    let page = include_str!("page.html");
    let (head, rest) = page.split_once("{title}").unwrap_or((page, ""));
    let (middle, end) = rest.split_once("{graphs}").unwrap_or((rest, ""));
    [head, &title, middle, &scenes.iter().map(graph).collect::<String>(), end].concat()
}

/// A file with the extension of a supported format.
fn file() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| match Format::of(&path) {
        Some(_) => Ok(path),
        None => Err("its name ends in .svg, .html or .dot"),
    })
}

#[derive(Serialize)]
struct Drawn {
    file: Option<String>,
    #[serde(flatten)]
    scene: Scene,
}

pub(crate) fn run(arguments: &Arguments, out: &Output) -> Result<Exit, Failure> {
    let model = arguments.model.load()?;
    let (interpreter, missing) = arguments.engine.build_shown(model)?;
    let index = arguments.subgraph;
    let subgraphs = interpreter.model().subgraphs();
    if index >= subgraphs.len() {
        let has = plural(subgraphs.len(), "subgraph");
        let text = format!("--subgraph {index}: there is no such subgraph; the model has {has}");
        return Err(Failure::new(Exit::Usage, text).with_help("subgraphs are numbered from 0"));
    }
    let name =
        arguments.model.path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    // Bodies of nodes that a delegate runs are prepared only without the delegate.
    let plain = || arguments.engine.build_plain(arguments.model.load()?);
    let runners = Runners::new(arguments.engine.cpu_name()).with_unresolved(missing.as_ref());
    let scenes = scenes(&interpreter, plain, index, &name, runners)?;
    if scenes.is_empty() {
        let message =
            format!("nothing that runs on the CPU calls subgraph {index}, so that it is not prepared");
        let help = match arguments.engine.delegates_anything() {
            true => "without --delegate, bodies of control flow are",
            false => "the nodes of functions and composites are in the graph that calls them",
        };
        return Err(Failure::new(Exit::Unsupported, message).with_help(help));
    }
    if let Some(missing) = missing {
        log::warn!("the model cannot run: {missing}");
    }
    if let Some(path) = &arguments.output {
        let picture = Format::of(path).unwrap_or(Format::Svg).write(&scenes);
        files::write(path, picture.as_bytes()).map_err(|e| files::cannot_write(path, &e))?;
    }
    let mut scenes = scenes.into_iter();
    let Some(scene) = scenes.next() else { return Err(Failure::internal()) };
    out.print(&Drawn { file: arguments.output.as_deref().map(shown), scene })?;
    Ok(Exit::Fine)
}

/// Returns the pictures of subgraph `index` and of the prepared subgraphs that its nodes call: prepared by
/// `interpreter` or, if a delegate runs the calling node, by `plain`, which has no delegates.
fn scenes(
    interpreter: &Interpreter,
    plain: impl Fn() -> Result<Interpreter, Failure>,
    index: usize,
    name: &str,
    runners: Runners<'_>,
) -> Result<Vec<Scene>, Failure> {
    let mut scenes: Vec<Scene> = Vec::new();
    let mut undelegated: Option<Interpreter> = None;
    // Each with the runner of its calling node.
    let mut open = VecDeque::from([(index, runners.cpu.to_owned(), Look::Cpu)]);
    let mut seen = HashSet::from([index]);
    while let Some((index, runner, look)) = open.pop_front() {
        if matches!(look, Look::Partition { .. }) && undelegated.is_none() {
            undelegated = Some(plain()?);
        }
        let prepared = |i: &'_ Interpreter| i.graph(index).zip(i.subgraph_report(index)).is_some();
        let from = match &undelegated {
            Some(plain) if !prepared(interpreter) && look != Look::Cpu => plain,
            _ => interpreter,
        };
        // The runner of the calling node also runs nodes that no delegate claimed separately.
        let rest = Rest { name: &runner, look, runners };
        let Some((graph, report)) = from.graph(index).zip(from.subgraph_report(index)) else { continue };
        let title = match (index, graph.subgraph().name()) {
            (0, _) => name.to_owned(),
            (_, subgraph) => format!("{name}, subgraph {index} \"{subgraph}\""),
        };
        let scene = Scene::new(title, &graph, report, &rest);
        for vertex in &scene.vertices {
            let new = vertex.callees.iter().filter(|callee| seen.insert(**callee));
            open.extend(new.map(|callee| (*callee, vertex.runner.clone(), vertex.look)));
        }
        scenes.push(scene);
    }
    Ok(scenes)
}

impl Document for Drawn {
    fn text(&self) -> String {
        let Some(file) = &self.file else { return dot::dot(&self.scene) };
        let nodes = self.scene.vertices.iter().filter(|v| v.node.is_some()).count();
        let edges = plural(self.scene.edges.len(), "edge");
        format!("{}: {}, {edges}\n", printable(file), plural(nodes, "node"))
    }
}

#[cfg(test)]
mod tests {
    use delegraph::core::ops::binary::AddParams;
    use delegraph::core::ops::control_flow::WhileParams;
    use delegraph::core::{
        BuiltinOp, InvokeContext, Kernel, ModelBuilder, Params, PrepareContext, SubgraphBuilder,
    };
    use delegraph::delegate_api::{
        DelegateKernel, DelegateParams, GraphView, NodeView, Rejection, VersionTable,
    };
    use delegraph::{Model, Simple, SimpleDelegate, TensorType};

    use super::*;

    /// Claims WHILE, and runs nothing.
    struct Loops(VersionTable);

    impl SimpleDelegate for Loops {
        fn name(&self) -> &str {
            "loops"
        }
        fn max_versions(&self) -> &VersionTable {
            &self.0
        }
        fn supports(&self, _: &NodeView<'_>) -> Result<(), Rejection> {
            Ok(())
        }
        fn create_kernel(
            &mut self,
            _: &DelegateParams,
            _: &GraphView<'_>,
        ) -> delegraph::Result<Box<dyn DelegateKernel>> {
            Ok(Box::new(Nothing))
        }
    }

    struct Nothing;

    impl Kernel for Nothing {
        fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> delegraph::Result<()> {
            cx.set_output_shape(0, [])
        }
        fn invoke(&mut self, _: &mut InvokeContext<'_>) -> delegraph::Result<()> {
            Ok(())
        }
    }

    impl DelegateKernel for Nothing {}

    fn counting() -> Model {
        let counted = |name: &str| {
            let mut graph = SubgraphBuilder::new(name);
            let i = graph.input("i", TensorType::Int32, []);
            (graph, i)
        };
        let (mut condition, i) = counted("condition");
        let limit = condition.constant("limit", [], &[3i32]);
        let more = condition.node(BuiltinOp::LESS, Params::None).inputs([i, limit]).output("more");
        condition.outputs([more]);
        let (mut body, i) = counted("body");
        let one = body.constant("one", [], &[1i32]);
        let next = body.node(BuiltinOp::ADD, AddParams::default()).inputs([i, one]).output("next");
        body.outputs([next]);
        let (mut main, i) = counted("main");
        let params = WhileParams::default().cond_subgraph_index(1).body_subgraph_index(2);
        let end = main.tensor("end", TensorType::Int32, []);
        main.node(BuiltinOp::WHILE, params).inputs([i]).writes([end]);
        main.outputs([end]);
        ModelBuilder::new().subgraph(main).subgraph(condition).subgraph(body).build().unwrap()
    }

    #[test]
    fn a_loop_of_a_delegate_has_pictures_of_its_subgraphs() {
        let versions = VersionTable::new(&[(BuiltinOp::WHILE, 1)]);
        let builder = Interpreter::builder(counting()).delegate(Simple(Loops(versions)));
        let plain = || Ok(Interpreter::builder(counting()).build()?);
        let mut interpreter = builder.build().unwrap();
        interpreter.prepare().unwrap();
        let scenes = scenes(&interpreter, plain, 0, "model", Runners::new("cpu")).unwrap();
        assert_eq!(scenes.iter().map(|scene| scene.subgraph).collect::<Vec<_>>(), [0, 1, 2]);
        for (scene, op) in scenes.iter().zip(["WHILE", "LESS", "ADD"]) {
            let node = scene.vertices.iter().find(|vertex| vertex.node.is_some()).unwrap();
            assert!(node.label.starts_with(op), "{}", node.label);
            assert_eq!(
                (node.runner.as_str(), node.look),
                ("loops #0", Look::Partition { delegate: 0, number: 0 }),
                "{op}"
            );
        }
    }
}
