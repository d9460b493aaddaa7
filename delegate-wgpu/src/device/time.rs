//! Estimates of the time that a device takes for a dispatch.
//!
//! A dispatch cannot be interrupted, and some drivers reset a device that takes seconds for one. Therefore, long runs
//! are divided into submissions, and nodes that would take too long are left to the CPU, whose kernels can be
//! interrupted.

use std::time::Duration;

use delegraph_core::{BuiltinOp, Op};
use delegraph_delegate_api::{NodeView, Rejection};
use delegraph_shaders::Caps;

/// Maximum estimated time of the arithmetic of a node.
const MAX_DISPATCH: Duration = Duration::from_secs(1);

/// The amounts that a slow device of a kind processes per second.
struct Speed {
    /// The time of a dispatch of a custom op, whose multiply-adds are unknown.
    custom: Duration,
    bytes: f64,
    /// Multiply-adds of ops whose kernels keep tiles of both operands in registers.
    products: f64,
    /// Multiply-adds of other ops.
    others: f64,
    /// Workgroups: each begins and ends, and waits at its barriers, however little it computes.
    workgroups: f64,
}

/// Mesa's llvmpipe on two threads.
const SOFTWARE: Speed =
    Speed { custom: Duration::from_millis(50), bytes: 4e9, products: 5e9, others: 2e8, workgroups: 1e6 };
/// An integrated GPU.
const HARDWARE: Speed =
    Speed { custom: Duration::from_millis(2), bytes: 5e10, products: 1e12, others: 1e11, workgroups: 5e7 };

impl Speed {
    fn of(caps: &Caps) -> &'static Speed {
        if caps.software { &SOFTWARE } else { &HARDWARE }
    }

    fn of_node(&self, node: &NodeView<'_>) -> Duration {
        match node.op() {
            Op::Builtin(op) => self.arithmetic(node.cost().multiply_adds, multiplies_matrices(*op)),
            Op::Custom(_) => self.custom,
        }
    }

    fn arithmetic(&self, multiply_adds: u64, in_tiles: bool) -> Duration {
        let speed = if in_tiles { self.products } else { self.others };
        Duration::from_secs_f64(multiply_adds as f64 / speed)
    }
}

fn multiplies_matrices(op: BuiltinOp) -> bool {
    matches!(
        op,
        BuiltinOp::BATCH_MATMUL
            | BuiltinOp::CONV_2D
            | BuiltinOp::DEPTHWISE_CONV_2D
            | BuiltinOp::FULLY_CONNECTED
            | BuiltinOp::TRANSPOSE_CONV
    )
}

/// Returns the time for a dispatch of `workgroups` that runs `nodes` and has `bytes` of operands.
pub(crate) fn estimate<'n>(
    caps: &Caps,
    bytes: u64,
    workgroups: [u32; 3],
    nodes: impl Iterator<Item = NodeView<'n>>,
) -> Duration {
    let speed = Speed::of(caps);
    let arithmetic: Duration = nodes.map(|node| speed.of_node(&node)).sum();
    let count: f64 = workgroups.into_iter().map(f64::from).product();
    arithmetic + Duration::from_secs_f64(bytes as f64 / speed.bytes + count / speed.workgroups)
}

/// Checks that a node of a built-in op does not take so long that it would block the device.
pub(crate) fn check(caps: &Caps, node: &NodeView<'_>) -> Result<(), Rejection> {
    match node.op() {
        Op::Builtin(op) => check_arithmetic(caps, node.cost().multiply_adds, multiplies_matrices(*op)),
        Op::Custom(_) => Ok(()),
    }
}

/// As [`check`], for a number of multiply-adds. `in_tiles`: of a kernel that keeps tiles of both operands in registers.
pub(crate) fn check_arithmetic(caps: &Caps, multiply_adds: u64, in_tiles: bool) -> Result<(), Rejection> {
    let time = Speed::of(caps).arithmetic(multiply_adds, in_tiles);
    if time <= MAX_DISPATCH {
        return Ok(());
    }
    Err(Rejection::UnsupportedParam(format!(
        "{multiply_adds} multiply-adds, which may take this device {:.1} s without an interruption; up to {} s are supported",
        time.as_secs_f64(),
        MAX_DISPATCH.as_secs()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_workgroups_take_time() {
        let of = |caps: &Caps, workgroups| estimate(caps, 0, workgroups, std::iter::empty());
        assert_eq!(of(&Caps::WEBGPU.with_software(true), [50_000, 5, 1]), Duration::from_millis(250));
        assert_eq!(of(&Caps::WEBGPU, [50_000, 250, 1]), Duration::from_millis(250));
    }

    #[test]
    fn long_work_is_refused() {
        let software = Caps::WEBGPU.with_software(true);
        for (caps, in_tiles, most) in [
            (software, true, 5_000_000_000),
            (software, false, 200_000_000),
            (Caps::WEBGPU, true, 1_000_000_000_000),
            (Caps::WEBGPU, false, 100_000_000_000),
        ] {
            assert_eq!(check_arithmetic(&caps, most, in_tiles), Ok(()));
            let refused = check_arithmetic(&caps, most + most / 10, in_tiles);
            assert!(matches!(refused, Err(Rejection::UnsupportedParam(_))), "{refused:?}");
        }
        assert!(check_arithmetic(&software, u64::MAX, false).is_err());
    }
}
