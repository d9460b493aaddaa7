//! `graph`: a picture of a model's graph, with who runs what in colours.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::delegates::Engine;
use super::failure::{Exit, Failure};
use super::model::ModelArgument;
use super::output::{Document, Output};
use scene::Scene;

mod dot;
mod layout;
mod scene;
mod svg;

/// Draw the graph, with the partitions of delegates coloured
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    model: ModelArgument,
    /// The picture, by the ending of its name: .svg, .html (which zooms and searches), or .dot for Graphviz. Without it,
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

    fn write(self, scene: &Scene) -> String {
        match self {
            Format::Svg => svg::svg(scene),
            Format::Dot => dot::dot(scene),
            Format::Html => {
                let page = include_str!("page.html");
                let (head, rest) = page.split_once("{title}").unwrap_or((page, ""));
                let (middle, end) = rest.split_once("{svg}").unwrap_or((rest, ""));
                [head, &svg::escape(&scene.title), middle, &svg::svg(scene), end].concat()
            }
        }
    }
}

/// A file whose name says its format.
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
    let interpreter = arguments.engine.build(model)?;
    let index = arguments.subgraph;
    let subgraphs = &interpreter.model().subgraphs;
    if index >= subgraphs.len() {
        return Err(Failure::invalid(format!("the model has {} subgraphs, no {index}", subgraphs.len())));
    }
    let Some((graph, report)) = interpreter.graph(index).zip(interpreter.subgraph_report(index)) else {
        let message =
            format!("nothing that runs on the CPU calls subgraph {index}, so that it is not prepared");
        return Err(Failure::new(Exit::Unsupported, message)
            .with_help("without --delegate, bodies of control flow are"));
    };
    let name =
        arguments.model.path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    let title = match (index, graph.subgraph().name.as_str()) {
        (0, _) => name,
        (_, subgraph) => format!("{name}, subgraph {index} \"{subgraph}\""),
    };
    let scene = Scene::new(title, &graph, report, arguments.engine.cpu_name());
    if let Some(path) = &arguments.output {
        let picture = Format::of(path).unwrap_or(Format::Svg).write(&scene);
        std::fs::write(path, picture)
            .map_err(|e| Failure::new(Exit::Failed, format!("{}: cannot write: {e}", path.display())))?;
    }
    out.print(&Drawn { file: arguments.output.clone(), scene })?;
    Ok(Exit::Fine)
}

impl Document for Drawn {
    fn text(&self) -> String {
        let Some(file) = &self.file else { return dot::dot(&self.scene) };
        let nodes = self.scene.vertices.iter().filter(|v| v.node.is_some()).count();
        format!("{}: {nodes} nodes, {} edges\n", file.display(), self.scene.edges.len())
    }
}
