//! A plugin that fails at a hook: `at=HOOK&how=error`, or `how=panic`, `abort`, `overflow` (of the stack), `hang`. It
//! claims every ADD of float32, and composites of the name in `composite=NAME` up to version 2. `wrong=N`: the result
//! of node N is one too large. `prints=TEXT`: prints TEXT when it runs. `scratch=BYTES`: requests a temporary of this
//! size.

#![allow(clippy::panic)] // Panicking is its purpose.

use delegraph_core::{
    BuiltinOp, Error, InvokeContext, Kernel, MutableOpResolver, PrepareContext, Registration, Result,
    TensorType,
};
use delegraph_delegate_api::plugin::{CreateError, PluginOptions};
use delegraph_delegate_api::{
    Delegate, DelegateContext, DelegateKernel, NodeState, Rejection, VersionTable, export_delegate,
};

export_delegate!(|options: &PluginOptions| {
    let ways = [
        ("error", How::Error),
        ("panic", How::Panic),
        ("abort", How::Abort),
        ("overflow", How::Overflow),
        ("hang", How::Hang),
    ];
    let how = options.choice("how", &ways)?.unwrap_or(How::Error);
    let prints = options.get("prints").unwrap_or_default().into();
    let fault = Fault { at: options.get("at").unwrap_or_default().into(), how, prints };
    let scratch = options.parse("scratch")?;
    fault.reach("create").map_err(CreateError::Failed)?;
    let wrong = options.parse("wrong")?;
    let mut versions = VersionTable::new(&[(BuiltinOp::ADD, 2)]);
    if let Some(name) = options.get("composite") {
        versions = versions.with_composite(name, 2);
    }
    Ok(Faulty { versions, fault, scratch, wrong })
});

#[derive(Clone, Copy, PartialEq)]
enum How {
    Error,
    Panic,
    Abort,
    Overflow,
    Hang,
}

#[derive(Clone)]
struct Fault {
    at: String,
    how: How,
    prints: String,
}

/// Overflows the stack.
#[allow(unconditional_recursion)] // Recursion is its purpose.
fn overflow(depth: u64) -> u64 {
    let room = [depth; 64];
    std::hint::black_box(overflow(std::hint::black_box(depth + 1)) + room[3])
}

impl Fault {
    /// Fails if `hook` is the selected one.
    fn reach(&self, hook: &str) -> Result<()> {
        if self.at != hook {
            return Ok(());
        }
        match self.how {
            How::Error => Err(Error::Kernel(format!("the test wants an error in {hook}"))),
            How::Panic => panic!("the test wants a panic in {hook}"),
            How::Abort => std::process::abort(),
            How::Overflow => Err(Error::Kernel(overflow(0).to_string())),
            How::Hang => loop {
                std::thread::park();
            },
        }
    }
}

struct Faulty {
    versions: VersionTable,
    fault: Fault,
    scratch: Option<usize>,
    wrong: Option<usize>,
}

impl Delegate for Faulty {
    fn name(&self) -> &str {
        "faulty"
    }

    fn max_versions(&self) -> &VersionTable {
        &self.versions
    }

    fn prepare<'a>(&'a mut self, cx: &mut DelegateContext<'a>) -> Result<()> {
        let mut nodes = Vec::new();
        for node in cx.graph().nodes() {
            match (cx.may_claim(&node), node.input(0).map(|t| t.ty())) {
                (Ok(()), Some(TensorType::Float32)) => nodes.push(node.id()),
                (Ok(()), _) => cx.reject(node.id(), Rejection::CostModel("no floats".into())),
                (Err(reason), _) => cx.reject(node.id(), reason),
            }
        }
        // The hook `prepare` fails after the claims, which the application must then undo.
        let fault = &self.fault;
        let (scratch, wrong) = (self.scratch, self.wrong);
        cx.claim(&nodes, move |params, graph| {
            let unexpected = params.nodes.iter().map(|id| graph.node(*id)).any(|node| {
                // The body of a composite may have state.
                let expected = NodeState::default().with_side_effects(node.composite().is_some());
                node.state() != expected
            });
            if unexpected {
                return Err(Error::Kernel("unexpected state".into()));
            }
            fault.reach("create_kernel")?;
            let order: Vec<_> = params.nodes.iter().map(|id| graph.node(*id).node().clone()).collect();
            let place = |id| params.inputs.iter().position(|i| *i == id);
            let [node] = order.as_slice() else {
                return Err(Error::Unsupported("partitions of several nodes".into()));
            };
            let operands = node.inputs().iter().flatten().filter_map(|id| place(*id)).collect();
            let start = if params.nodes.iter().any(|id| Some(id.0) == wrong) { 1.0 } else { 0.0 };
            Ok(Box::new(Adds { operands, fault: fault.clone(), scratch, start }))
        });
        fault.reach("prepare")
    }
}

impl Drop for Faulty {
    fn drop(&mut self) {
        // An error cannot be returned from here.
        if self.fault.how == How::Panic {
            let _ = self.fault.reach("drop");
        }
    }
}

struct Adds {
    operands: Vec<usize>,
    fault: Fault,
    scratch: Option<usize>,
    /// The initial value of the sum.
    start: f32,
}

impl Kernel for Adds {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        self.fault.reach("prepare_kernel")?;
        if let Some(bytes) = self.scratch {
            cx.temporary(bytes);
        }
        Ok(())
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        if !self.fault.prints.is_empty() {
            println!("{}", self.fault.prints);
        }
        let output: &mut [f32] = cx.output(0)?;
        output.fill(self.start);
        for &operand in &self.operands {
            let input: &[f32] = cx.input(operand)?;
            output.iter_mut().zip(input).for_each(|(out, value)| *out += value);
        }
        // The hook `thread` fails in a task, possibly on another thread.
        let fault = &self.fault;
        if fault.at == "thread" {
            cx.parallel().run(4, &|i| {
                if i == 2 {
                    let _ = fault.reach("thread");
                }
            });
        }
        self.fault.reach("invoke")
    }
}

impl DelegateKernel for Adds {}

impl Drop for Adds {
    fn drop(&mut self) {
        if self.fault.how == How::Panic {
            let _ = self.fault.reach("drop_kernel");
        }
    }
}

delegraph_delegate_api::export_kernels!(|resolver: &mut MutableOpResolver| {
    // An environment variable selects the failure, since the library receives no options before its kernels are
    // created.
    if let Ok(how) = std::env::var("DELEGRAPH_FAULTY_OPEN") {
        match how.as_str() {
            "panic" => panic!("the test wants a panic in open"),
            _ => _ = resolver.add_builtin(BuiltinOp::ADD, Registration::new(|_| Ok(FaultyOp::default())), 1),
        }
    }
    let make = |cx: &delegraph_core::kernel::InitContext<'_>| {
        let options = cx.options()?;
        let fault = Fault {
            at: options.get("at")?,
            how: if options.get("how").is_ok_and(|how: &str| how == "panic") {
                How::Panic
            } else {
                How::Error
            },
            prints: String::new(),
        };
        fault.reach("create")?;
        Ok(FaultyOp { fault: Some(fault) })
    };
    resolver.add_custom("Faulty", Registration::new(make), 1..=3);
});

/// Copies its input, unless it has to fail.
#[derive(Default)]
struct FaultyOp {
    fault: Option<Fault>,
}

impl Drop for FaultyOp {
    fn drop(&mut self) {
        if self.fault.as_ref().is_some_and(|fault| fault.at == "drop") {
            panic!("the test wants a panic in drop");
        }
    }
}

impl Kernel for FaultyOp {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        let Some(fault) = &self.fault else { return Ok(()) };
        fault.reach("prepare")?;
        let shape = cx.input(0)?.shape().clone();
        if fault.at == "memory" {
            cx.temporary(usize::MAX / 2);
        }
        cx.set_output_shape(if fault.at == "output" { 7 } else { 0 }, shape)
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        if let Some(fault) = &self.fault {
            fault.reach("invoke")?;
            if fault.at == "resize" {
                cx.resize_output(0, [1])?;
            }
            if fault.at == "thread" {
                cx.parallel().run(4, &|i| assert!(i != 2, "the test wants a panic in a task"));
            }
        }
        let (input, output) = (cx.input::<f32>(0)?, cx.output::<f32>(0)?);
        output.copy_from_slice(input);
        Ok(())
    }
}
