//! Delegates that violate the contract, each in one way, which the suite must report.

#![allow(clippy::panic, clippy::unwrap_used)] // Only tests are here.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use delegraph_conformance::cases::{self, Case};
use delegraph_conformance::compare::Arithmetic;
use delegraph_conformance::contract::CHECKS;
use delegraph_conformance::engine::{Backend, CaseFailure, CaseResult, Outcome, Problem};
use delegraph_conformance::runner::{ContractChecks, Engine};
use delegraph_core::kernel::{InvokeContext, Kernel, PrepareContext};
use delegraph_core::ops::binary::AddParams;
use delegraph_core::{BuiltinOp, Error, Result, TensorType};
use delegraph_delegate_api::{
    Capabilities, Delegate, DelegateContext, DelegateKernel, DelegateParams, DelegateStats, GraphView,
    NodeView, Rejection, Simple, SimpleDelegate, VersionTable,
};

/// The flaw of a delegate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    Nothing,
    /// Declares a version that does not exist.
    DeclaresTooMuch,
    GivesNoReason,
    IgnoresActivation,
    WritesInput,
    WritesConstant,
    WritesBeyond,
    WritesBefore,
    /// Leaves parts of the previous output.
    AddsToOutput,
    RemembersFirstData,
    RemembersFirstShape,
    SecondRunDiffers,
    TenthRunDiffers,
    /// Keeps state of earlier invocations when the interpreter's state is reset.
    RemembersAfterReset,
    FailsWhenUsedAgain,
    /// Constants are kept by their length and first element.
    TakesConstantsOfOthers,
    OneAtATime,
    UnusableAfterFailure,
    LeaksWhenInvoked,
    LeaksWhenMade,
    GrowsOnDevice,
    PanicsWhenInvoked,
    FailsToPrepare,
    ClaimsAndFails,
    /// Not a flaw: it creates permanent data in the background during the lifetime of a kernel.
    MakesThingsInBackground,
}

/// Runs ADD of float32 tensors of one shape, with a flaw.
struct Adder {
    versions: VersionTable,
    flaw: Flaw,
    offered: usize,
    made: usize,
    length: Option<usize>,
}

impl Adder {
    fn new(flaw: Flaw) -> Self {
        let max = if flaw == Flaw::DeclaresTooMuch { 99 } else { 1 };
        Adder {
            versions: VersionTable::new(&[(BuiltinOp::ADD, max)]),
            flaw,
            offered: 0,
            made: 0,
            length: None,
        }
    }

    fn supports(&self, node: &NodeView<'_>) -> Result<AddParams, Rejection> {
        let shapes = node.inputs().map(|t| t.shape().cloned()).collect::<Vec<_>>();
        if node.inputs().any(|t| t.ty() != TensorType::Float32) {
            return Err(Rejection::UnsupportedType { operand: "input 0".into(), ty: TensorType::Int32 });
        }
        if shapes[0] != shapes[1] {
            return Err(Rejection::UnsupportedParam("broadcasting".into()));
        }
        let params: Result<&AddParams, _> = node.params().try_into();
        params.cloned().map_err(|e| Rejection::Other(e.to_string()))
    }
}

impl Delegate for Adder {
    fn name(&self) -> &str {
        "adder"
    }

    fn max_versions(&self) -> &VersionTable {
        &self.versions
    }

    fn prepare<'a>(&'a mut self, cx: &mut DelegateContext<'a>) -> Result<()> {
        let mut nodes = Vec::new();
        for node in cx.graph().nodes() {
            match cx.may_claim(&node).and_then(|()| self.supports(&node)) {
                Ok(_) => nodes.push(node.id()),
                Err(_) if self.flaw == Flaw::GivesNoReason => {}
                Err(reason) => cx.reject(node.id(), reason),
            }
        }
        if self.flaw == Flaw::FailsToPrepare && !nodes.is_empty() {
            return Err(Error::State("out of luck".into()));
        }
        // The previous claim has no kernel because of a failure.
        if self.flaw == Flaw::UnusableAfterFailure && self.offered > self.made {
            return Err(Error::State("it failed once already".into()));
        }
        self.offered += usize::from(!nodes.is_empty());
        cx.claim(&nodes, move |params, graph| self.kernel(params, graph));
        Ok(())
    }
}

impl Adder {
    fn kernel(&mut self, params: &DelegateParams, graph: &GraphView<'_>) -> Result<Box<dyn DelegateKernel>> {
        self.made += 1;
        if self.flaw == Flaw::FailsWhenUsedAgain && self.made > 1 {
            return Err(Error::State("only once".into()));
        }
        if self.flaw == Flaw::LeaksWhenMade {
            Box::leak(vec![0u8; 100].into_boxed_slice());
        }
        let node = graph.node(params.nodes[0]);
        let (low, high) = self.supports(&node).unwrap().fused_activation_function.clamp().unwrap();
        let length = node.output(0).and_then(|t| t.shape()).map_or(0, |s| s.elements());
        let length = match self.flaw {
            Flaw::RemembersFirstShape => *self.length.get_or_insert(length),
            _ => length,
        };
        if self.flaw == Flaw::WritesConstant
            && let Some(constant) = node.inputs().find_map(|t| t.constant_as::<f32>())
        {
            let first = std::hint::black_box(constant.as_ptr().cast_mut());
            // SAFETY: none; this delegate is wrong. The constant's memory is on the heap.
            unsafe { first.write_volatile(first.read_volatile() + 1.0) };
        }
        let of = |i: usize| params.inputs.iter().position(|id| Some(*id) == node.input(i).map(|t| t.id()));
        // A constant input is not an input of the partition.
        let operand = |i: usize| match of(i) {
            Some(place) => Addend::Input(place),
            None => {
                let values = node.input(i).and_then(|t| t.constant_as::<f32>()).unwrap_or(&[]).to_vec();
                Addend::Constant(if self.flaw == Flaw::TakesConstantsOfOthers {
                    kept(values)
                } else {
                    values
                })
            }
        };
        let operands = [operand(0), operand(1)];
        let background = (self.flaw == Flaw::MakesThingsInBackground).then(Background::begin);
        Ok(Box::new(Sum {
            flaw: self.flaw,
            low,
            high,
            length,
            operands,
            runs: 0,
            first: None,
            _background: background,
        }))
    }
}

/// Permanent data such as compiled shaders: a short run creates a part of it, a long run all of it.
struct Background {
    since: Instant,
}

static KEPT_FOR_GOOD: Mutex<Vec<Box<[u8]>>> = Mutex::new(Vec::new());
const THINGS: usize = 5000;

impl Background {
    fn begin() -> Self {
        Self::make(1);
        Background { since: Instant::now() }
    }

    fn make(count: usize) {
        let mut kept = KEPT_FOR_GOOD.lock().unwrap();
        let left = THINGS - kept.len();
        kept.extend((0..count.min(left)).map(|_| vec![0; 2000].into_boxed_slice()));
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if self.since.elapsed() > Duration::from_millis(300) {
            Self::make(THINGS);
        }
    }
}

/// Returns the first of the passed constants that has this length and this first element.
fn kept(values: Vec<f32>) -> Vec<f32> {
    static KEPT: Mutex<Vec<Vec<f32>>> = Mutex::new(Vec::new());
    let mut all = KEPT.lock().unwrap();
    let same = |v: &&Vec<f32>| v.len() == values.len() && v.first() == values.first();
    if let Some(found) = all.iter().find(same) {
        return found.clone();
    }
    all.push(values.clone());
    values
}

enum Addend {
    Input(usize),
    Constant(Vec<f32>),
}

struct Sum {
    flaw: Flaw,
    low: f32,
    high: f32,
    length: usize,
    operands: [Addend; 2],
    runs: usize,
    first: Option<Vec<f32>>,
    _background: Option<Background>,
}

static AT_ONCE: AtomicUsize = AtomicUsize::new(0);

impl Kernel for Sum {
    fn prepare(&mut self, _: &mut PrepareContext<'_>) -> Result<()> {
        Ok(())
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        let of = |operand: &Addend, cx: &mut InvokeContext<'_>| match operand {
            Addend::Input(place) => cx.input::<f32>(*place).map(<[f32]>::to_vec),
            Addend::Constant(values) => Ok(values.clone()),
        };
        let (a, b) = (of(&self.operands[0], cx)?, of(&self.operands[1], cx)?);
        let output = cx.output::<f32>(0)?;
        self.runs += 1;
        match self.flaw {
            Flaw::PanicsWhenInvoked => panic!("no reason"),
            Flaw::ClaimsAndFails => return Err(Error::Unsupported("after all".into())),
            Flaw::LeaksWhenInvoked => {
                Box::leak(vec![0u8; 40].into_boxed_slice());
            }
            _ => {}
        }
        let bounds =
            if self.flaw == Flaw::IgnoresActivation { (f32::MIN, f32::MAX) } else { (self.low, self.high) };
        let mut sums: Vec<f32> =
            a.iter().zip(&b).take(self.length).map(|(a, b)| (a + b).clamp(bounds.0, bounds.1)).collect();
        match self.flaw {
            Flaw::RemembersFirstData => sums.clone_from(self.first.get_or_insert_with(|| sums.clone())),
            Flaw::SecondRunDiffers if self.runs > 1 => sums.iter_mut().for_each(|s| *s = s.next_up()),
            Flaw::AddsToOutput if output[0].abs() > 1e15 => sums[0] = output[0],
            Flaw::TenthRunDiffers if self.runs == 10 => sums.iter_mut().for_each(|s| *s += 1.0),
            Flaw::RemembersAfterReset if self.runs > 3 => sums.iter_mut().for_each(|s| *s += 1.0),
            // SAFETY: none; this delegate is wrong. The guards make the memory valid.
            Flaw::WritesInput => unsafe { *cx.input::<f32>(0)?.as_ptr().cast_mut() += 1.0 },
            // SAFETY: as above.
            Flaw::WritesBeyond => unsafe { *output.as_mut_ptr().add(output.len()) = 7.0 },
            // SAFETY: as above.
            Flaw::WritesBefore => unsafe { *output.as_mut_ptr().sub(1) = 7.0 },
            Flaw::OneAtATime => {
                let others = AT_ONCE.fetch_add(1, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(20));
                sums[0] += others as f32;
                AT_ONCE.fetch_sub(1, Ordering::SeqCst);
            }
            _ => {}
        }
        output[..self.length].copy_from_slice(&sums);
        Ok(())
    }
}

impl DelegateKernel for Sum {
    fn stats(&self) -> DelegateStats {
        let device_bytes = if self.flaw == Flaw::GrowsOnDevice { self.runs as u64 * 4096 } else { 0 };
        DelegateStats::default().with_device_bytes(device_bytes)
    }
}

fn run(flaw: Flaw, case: &str) -> CaseResult {
    run_on(Backend::delegate("adder", Arc::new(move || Ok(Box::new(Adder::new(flaw))))), case)
}

fn run_on(backend: Backend, case: &str) -> CaseResult {
    static CASES: OnceLock<Vec<Case>> = OnceLock::new();
    let case =
        CASES.get_or_init(|| cases::suite(cases::DEFAULT_SEED)).iter().find(|c| c.name == case).unwrap();
    let make = || {
        Problem::of_case(case, Arithmetic::Ieee)
            .map_err(|e| CaseFailure::new(Outcome::Invalid, e.to_string()))
    };
    let result = Engine::new(backend).run_made(&case.name, make, ContractChecks::Run);
    assert_eq!(result.case, case.name);
    result
}

/// Asserts that the check `by` is the first to report a delegate with this flaw, with a message that contains `part`.
fn noticed(flaw: Flaw, case: &str, by: &str, part: &str) {
    let result = run(flaw, case);
    assert_eq!(result.outcome, Outcome::Violation, "{flaw:?}: {result:?}");
    let found = result.checks.iter().find(|c| !c.problem.is_empty()).unwrap();
    assert_eq!(found.name, by, "{flaw:?}: {}", found.problem);
    assert!(found.problem.contains(part), "{flaw:?}: {}", found.problem);
}

fn check(flaw: Flaw, case: &str, outcome: Outcome, part: &str) {
    let result = run(flaw, case);
    assert_eq!(result.outcome, outcome, "{flaw:?}: {result:?}");
    assert!(result.detail.contains(part), "{flaw:?}: {}", result.detail);
}

const PLAIN: &str = "binary/add_float32_shapes0";
/// With a constant operand of the same shape.
const CONSTANT: &str = "binary/add_float32_random_1";
/// A graph that keeps a variable.
const STATEFUL: &str = "graphs/read_variable_float32_variables_random_0";

#[test]
fn a_right_delegate_passes() {
    let result = run(Flaw::Nothing, PLAIN);
    assert_eq!((result.outcome, result.claimed, result.nodes), (Outcome::Pass, 1, 1), "{result:?}");
    assert_eq!(result.checks.len(), 12, "{:?}", result.checks);
    assert!(result.time.is_some() && result.cpu_time.is_some());
    let errors = result.errors.unwrap();
    assert_eq!((errors.wrong, errors.elements), (0, 30));
}

/// Runs WHERE, whose number of output rows is not known in advance.
struct Finder(VersionTable);

impl SimpleDelegate for Finder {
    fn name(&self) -> &str {
        "finder"
    }

    fn max_versions(&self) -> &VersionTable {
        &self.0
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default().with_dynamic_shapes(true)
    }

    fn supports(&self, node: &NodeView<'_>) -> Result<(), Rejection> {
        match node.inputs().next().map(|t| t.ty()) {
            Some(TensorType::Int32) => Ok(()),
            _ => Err(Rejection::UnsupportedParam("not int32".into())),
        }
    }

    fn create_kernel(&mut self, _: &DelegateParams, _: &GraphView<'_>) -> Result<Box<dyn DelegateKernel>> {
        Ok(Box::new(Find))
    }
}

struct Find;

impl Kernel for Find {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        cx.set_output_data_dependent(0)
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        let (input, shape) = (cx.input::<i32>(0)?, cx.input_shape(0)?.clone());
        let found: Vec<usize> = (0..input.len()).filter(|&i| input[i] != 0).collect();
        cx.resize_output(0, [found.len(), shape.rank()])?;
        let rows = cx.output::<i64>(0)?.chunks_exact_mut(shape.rank());
        for (row, mut rest) in rows.zip(found) {
            for (index, &size) in row.iter_mut().zip(shape.iter()).rev() {
                (rest, *index) = (rest / size, (rest % size) as i64);
            }
        }
        Ok(())
    }
}

impl DelegateKernel for Find {}

/// A delegate may also run nodes whose output shape depends on data.
#[test]
fn a_right_delegate_of_dynamic_shapes_passes() {
    let make =
        || Ok(Box::new(Simple(Finder(VersionTable::new(&[(BuiltinOp::WHERE, 2)])))) as Box<dyn Delegate>);
    let result = run_on(Backend::delegate("finder", Arc::new(make)), "where_op/where_int32");
    assert_eq!((result.outcome, result.claimed, result.checks.len()), (Outcome::Pass, 1, 12), "{result:?}");
}

#[test]
fn what_is_not_claimed_is_not_supported_and_says_why() {
    let result = run(Flaw::Nothing, "binary/add_float32_shapes1");
    assert_eq!(result.outcome, Outcome::Unsupported);
    assert_eq!(result.detail, "node 0 ADD v1: UnsupportedParam: broadcasting");
    // Not one of its ops.
    let result = run(Flaw::Nothing, "binary/mul_float32_shapes0");
    assert_eq!(result.detail, "node 0 MUL v1: UnsupportedOp: MUL is not supported");
}

#[test]
fn numbers() {
    check(Flaw::IgnoresActivation, "binary/add_float32_relu6", Outcome::Unsupported, "broadcasting");
    check(Flaw::RemembersFirstData, PLAIN, Outcome::Mismatch, "in invocation 2");
    check(Flaw::PanicsWhenInvoked, PLAIN, Outcome::Error, "no reason");
    check(Flaw::ClaimsAndFails, PLAIN, Outcome::Error, "after all");
    check(Flaw::FailsToPrepare, PLAIN, Outcome::Error, "out of luck");
}

#[test]
fn versions_and_reasons() {
    noticed(Flaw::DeclaresTooMuch, PLAIN, "versions", "declares ADD up to version 99");
    noticed(Flaw::GivesNoReason, "binary/add_float32_shapes1", "reasons", "no reason is given");
}

#[test]
fn memory_of_others() {
    noticed(Flaw::WritesInput, PLAIN, "ran", "wrote to its input 0");
    noticed(Flaw::WritesConstant, CONSTANT, "inputs", "a constant of the model");
    noticed(Flaw::WritesBeyond, PLAIN, "bounds", "next to output 0");
    noticed(Flaw::WritesBefore, PLAIN, "bounds", "next to output 0");
    noticed(Flaw::AddsToOutput, PLAIN, "bounds", "held something else before");
}

#[test]
fn the_life_of_a_delegate() {
    noticed(Flaw::RemembersFirstShape, PLAIN, "resize", "a resize");
    noticed(Flaw::SecondRunDiffers, PLAIN, "repeat", "in the last digits");
    noticed(Flaw::TenthRunDiffers, PLAIN, "repeat", "the same data again");
    noticed(Flaw::RemembersAfterReset, STATEFUL, "reset", "after its state was reset");
    noticed(Flaw::FailsWhenUsedAgain, PLAIN, "resize", "only once");
    noticed(Flaw::FailsWhenUsedAgain, STATEFUL, "again", "");
    noticed(Flaw::TakesConstantsOfOthers, CONSTANT, "constants", "a model with other constants");
    noticed(Flaw::UnusableAfterFailure, PLAIN, "failures", "used again after");
    noticed(Flaw::OneAtATime, PLAIN, "threads", "two threads at once");
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[test]
fn leaks() {
    noticed(Flaw::LeaksWhenInvoked, PLAIN, "memory", "every invocation leaks about");
    noticed(Flaw::LeaksWhenMade, PLAIN, "memory", "every new delegate leaks about");
    noticed(Flaw::GrowsOnDevice, PLAIN, "memory", "on the device");
}

#[test]
fn allocations_once_in_the_background_are_not_a_leak() {
    let result = run(Flaw::MakesThingsInBackground, PLAIN);
    assert_eq!(result.outcome, Outcome::Pass, "{result:?}");
    assert_eq!(KEPT_FOR_GOOD.lock().unwrap().len(), THINGS);
}

/// Each check reports at least one delegate: no check always passes.
#[test]
fn every_check_is_tried() {
    let source = include_str!("contract.rs");
    for check in CHECKS {
        let tried = source.contains(&format!("\"{check}\","));
        assert!(tried, "no delegate here breaks what `{check}` looks at");
    }
}
