//! Cases for every op that LiteRT's CPU resolver registers: every version, and every supported type.
//!
//! A family's file lists problems: op, params, operands with seeded data, and special properties. The recorded outputs
//! of LiteRT are in `conformance/goldens/ops`; kernels, and optionally delegates, are compared with them.
//!
//! The [`Verdict`] of a case describes the exception if LiteRT does not run the case, or if two runs return different
//! outputs.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::{Arc, OnceLock};

use delegraph_core::ops::definition;
use delegraph_core::{BuiltinOp, Op, OpResolver, Registration, TensorType};
use delegraph_delegate_api::Delegate;

mod case;
mod chain;
mod evidence;
mod expected;
mod generate;
mod mutant;
mod operand;
mod oracle;
mod probe;
mod suite;
mod versions;

pub use case::{Case, Computed, Output, Verdict};
pub use chain::Chain;
pub use expected::{Entry, Expected, Recorded};
pub use mutant::mutant;
pub use operand::{Kind, Operand};
pub use probe::probes;
pub use suite::{DEFAULT_SEED, Quantized, suite};

macro_rules! families {
    ($($family:ident,)*) => {
        $(mod $family;)*
        const OP_KINDS: &[oracle::OpKinds] = &[$($family::OP_KINDS),*];
        /// Returns the cases that the families list, in their order.
        fn listed() -> Vec<Case> {
            let mut cases = Vec::new();
            $($family::cases(&mut cases);)*
            cases
        }
    };
}

families! {
    add_n,
    arg_min_max,
    batch_matmul,
    binary,
    bucketize,
    cast,
    comparison,
    complex,
    concatenation,
    control_flow,
    conv_2d,
    conv_3d,
    cumsum,
    densify,
    depth_to_space,
    depthwise_conv_2d,
    dilate,
    dynamic_update_slice,
    embedding_lookup,
    fill,
    fully_connected,
    gather,
    hashtable,
    hashtable_lookup,
    l2_normalization,
    local_response_normalization,
    lsh_projection,
    lstm,
    matrix_diag,
    non_max_suppression,
    one_hot,
    pack,
    pad,
    pool_2d,
    prelu,
    quantize,
    random,
    reduce,
    reduce_window,
    reshape,
    resize,
    reverse,
    rnn,
    scatter,
    segment,
    select,
    shape,
    skip_gram,
    slice,
    softmax,
    space_to_batch,
    sparse_to_dense,
    split,
    stablehlo_compute,
    stablehlo_elementwise,
    stablehlo_gather,
    stablehlo_movement,
    svdf,
    tile,
    topk,
    transpose,
    transpose_conv,
    unary,
    unique,
    variables,
    where_op,
}

/// Returns the listed cases, for which LiteRT's results are recorded. Where a family lists none for a version of an op,
/// the op's first cases are repeated in that version.
pub fn all() -> Vec<Case> {
    let mut cases = listed();
    cases.extend(versions::other_versions(&cases));
    name(&mut cases);
    cases
}

/// Gives each case a unique name.
fn name(cases: &mut [Case]) {
    let mut names = BTreeMap::<String, usize>::new();
    for case in cases {
        let label = case.label();
        let count = names.entry(label.clone()).or_default();
        *count += 1;
        case.name = if *count == 1 { label } else { format!("{label}_{count}") };
    }
}

/// The newest TFLite release whose versions the recorded LiteRT supports (`conformance/goldens/ops`).
const RECORDED_RELEASE: (u32, u32) = (2, 23);

/// Returns the versions in which the CPU resolver of the recorded LiteRT registers an op.
pub fn versions(op: BuiltinOp) -> Vec<u32> {
    // Releases list a version of the op, but no resolver registers it.
    if op == BuiltinOp::STABLEHLO_CBRT {
        return Vec::new();
    }
    let recorded = |release: &str| {
        let mut numbers = release.split('.').map_while(|number| number.parse().ok());
        (numbers.next(), numbers.next()) <= (Some(RECORDED_RELEASE.0), Some(RECORDED_RELEASE.1))
    };
    let history = definition(op).map_or(&[][..], |def| def.history);
    history.iter().filter(|(_, release)| recorded(release)).map(|(version, _)| *version).collect()
}

/// Returns the types of an op's data operand for which the kernels of `resolver` accept at least one case.
pub fn types(op: BuiltinOp, resolver: &Arc<dyn OpResolver>) -> Vec<TensorType> {
    types_where(op, |case| case.prepares(Shared(Arc::clone(resolver))))
}

/// Returns the types of an op's data operand for which a delegate claims the op in at least one case. `delegate` is
/// called for each case.
pub fn claimed_types(op: BuiltinOp, delegate: impl Fn() -> Box<dyn Delegate>) -> Vec<TensorType> {
    types_where(op, |case| case.is_claimed(&delegate))
}

/// As [`claimed_types`], including types in which the delegate claims a retyped case, whether or not CPU kernels
/// support them.
pub fn claimed_types_anywhere(op: BuiltinOp, delegate: impl Fn() -> Box<dyn Delegate>) -> Vec<TensorType> {
    let mut types: BTreeSet<TensorType> = claimed_types(op, &delegate).into_iter().collect();
    let mut tried = BTreeSet::new();
    for case in listed_once().iter().filter(|c| c.op == op) {
        for &ty in TensorType::ALL {
            if let Some(case) = case.retyped(ty).filter(|_| !types.contains(&ty))
                && tried.insert((ty, case.operand_types()))
                && case.is_taken_over(&delegate)
            {
                types.insert(ty);
            }
        }
    }
    types.into_iter().collect()
}

fn listed_once() -> &'static [Case] {
    static LISTED: OnceLock<Vec<Case>> = OnceLock::new();
    LISTED.get_or_init(listed)
}

fn types_where(op: BuiltinOp, accepted: impl Fn(&Case) -> bool) -> Vec<TensorType> {
    let mut types = BTreeSet::new();
    for case in listed_once().iter().filter(|c| c.op == op) {
        if let Some(ty) = case.data_type().filter(|ty| !types.contains(ty))
            && accepted(case)
        {
            types.insert(ty);
        }
    }
    types.into_iter().collect()
}

/// A resolver that several interpreters use.
struct Shared(Arc<dyn OpResolver>);

impl OpResolver for Shared {
    fn find(&self, op: &Op, version: u32) -> Option<&Registration> {
        self.0.find(op, version)
    }

    fn versions(&self, op: &Op) -> Vec<RangeInclusive<u32>> {
        self.0.versions(op)
    }
}

/// Imports of the families' files.
mod prelude {
    pub(super) use delegraph_core::BuiltinOp as Op;
    pub(super) use delegraph_core::ops::{Activation, Padding};
    pub(super) use delegraph_core::{Params, TensorType, TensorType::*};

    pub(super) use super::operand::{Operand, given, known, list, quantum, strings, x};
    pub(super) use super::oracle::{OpKind, OpKinds};
    pub(super) use super::{Case, Output, Verdict};
}
