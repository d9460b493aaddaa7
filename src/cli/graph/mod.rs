//! `graph`: a picture of a model's graph, coloured by what runs each node.

use std::collections::{HashSet, VecDeque};
use std::path::{Path, PathBuf};

use delegraph::Interpreter;
use serde::Serialize;

use super::delegates::Engine;
use super::failure::{Exit, Failure};
use super::model::ModelArgument;
use super::output::{Document, Output};
use super::text::plural;
use scene::Scene;
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
    #[arg(short, long, value_name = "FILE", value_parser = file)]
    output: Option<PathBuf>,
    /// Which subgraph
    #[arg(long, value_name = "N", default_value_t = 0)]
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

    /// Returns the picture of the first of `scenes`; a page has all of them, and nodes lead to the subgraphs that they call.
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
fn file(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    Format::of(&path).map(|_| path).ok_or_else(|| "its name ends in .svg, .html or .dot".into())
}

#[derive(Serialize)]
struct Drawn {
    file: Option<PathBuf>,
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
        return Err(Failure::invalid(format!("the model has {has}, there is no subgraph {index}")));
    }
    let name =
        arguments.model.path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    let scenes = scenes(&interpreter, index, &name, arguments.engine.cpu_name());
    if scenes.is_empty() {
        let message =
            format!("nothing that runs on the CPU calls subgraph {index}, so that it is not prepared");
        return Err(Failure::new(Exit::Unsupported, message)
            .with_help("without --delegate, bodies of control flow are"));
    }
    if let Some(missing) = missing {
        log::warn!("the model cannot run: {missing}");
    }
    if let Some(path) = &arguments.output {
        let picture = Format::of(path).unwrap_or(Format::Svg).write(&scenes);
        std::fs::write(path, picture)
            .map_err(|e| Failure::new(Exit::Failed, format!("{}: cannot write: {e}", path.display())))?;
    }
    let mut scenes = scenes.into_iter();
    let Some(scene) = scenes.next() else { return Err(Failure::internal()) };
    out.print(&Drawn { file: arguments.output.clone(), scene })?;
    Ok(Exit::Fine)
}

/// Returns the picture of subgraph `index` and those of the subgraphs that its nodes call, as far as they are prepared.
fn scenes(interpreter: &Interpreter, index: usize, name: &str, cpu: &str) -> Vec<Scene> {
    let mut scenes: Vec<Scene> = Vec::new();
    let (mut open, mut seen) = (VecDeque::from([index]), HashSet::from([index]));
    while let Some(index) = open.pop_front() {
        let prepared = interpreter.graph(index).zip(interpreter.subgraph_report(index));
        let Some((graph, report)) = prepared else { continue };
        let title = match (index, graph.subgraph().name()) {
            (0, _) => name.to_owned(),
            (_, subgraph) => format!("{name}, subgraph {index} \"{subgraph}\""),
        };
        let scene = Scene::new(title, &graph, report, cpu);
        let callees = scene.vertices.iter().flat_map(|vertex| vertex.callees.iter().copied());
        open.extend(callees.filter(|callee| seen.insert(*callee)));
        scenes.push(scene);
    }
    scenes
}

impl Document for Drawn {
    fn text(&self) -> String {
        let Some(file) = &self.file else { return dot::dot(&self.scene) };
        let nodes = self.scene.vertices.iter().filter(|v| v.node.is_some()).count();
        let edges = plural(self.scene.edges.len(), "edge");
        format!("{}: {}, {edges}\n", file.display(), plural(nodes, "node"))
    }
}
