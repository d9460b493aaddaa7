//! BUCKETIZE.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::bucketize::BucketizeParams;
use delegraph_core::{BuiltinOp, Element, MutableOpResolver, Result, TensorType};

use crate::common::pace::zip_pieces;
use crate::common::prepared::{Invoke, prepared, unsupported_type};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver.add_builtin(BuiltinOp::BUCKETIZE, prepared(prepare), 1);
}

/// Integers are compared as floats, like the boundaries; only doubles are compared as doubles.
fn prepare(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let boundaries = cx.params::<BucketizeParams>()?.boundaries.clone();
    match cx.input(0)?.ty() {
        TensorType::Float32 => Ok(on(boundaries, |x: f32, b| x < b)),
        TensorType::Float64 => Ok(on(boundaries, |x: f64, b| x < b.into())),
        TensorType::Int32 => Ok(on(boundaries, |x: i32, b| (x as f32) < b)),
        TensorType::Int64 => Ok(on(boundaries, |x: i64, b| (x as f32) < b)),
        _ => Err(unsupported_type("input", cx.input(0)?)),
    }
}

fn on<T: Element>(boundaries: Vec<f32>, below: fn(T, f32) -> bool) -> Invoke {
    Box::new(move |cx| {
        let (input, output) = (cx.input::<T>(0)?, cx.output::<i32>(0)?);
        zip_pieces(cx, 1, output, input, |_, output, input| {
            for (o, &x) in output.iter_mut().zip(input) {
                *o = boundaries.partition_point(|&b| !below(x, b)) as i32;
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;

    use super::*;
    use crate::testing::{T, check, error};

    #[test]
    fn buckets() {
        let params = || Params::Bucketize(BucketizeParams::default().boundaries(vec![0.0, 2.0, 2.0, 5.5]));
        let want = || T::new(&[2, 2], &[0, 1, 3, 4]);
        let (floats, ints) = ([-0.5f32, 0.0, 2.0, 5.5], [-1i64, 1, 5, 6]);
        check(BuiltinOp::BUCKETIZE, 1, params(), &[Some(T::new(&[2, 2], &floats))], &[want()]);
        check(BuiltinOp::BUCKETIZE, 1, params(), &[Some(T::new(&[2, 2], &floats.map(f64::from)))], &[want()]);
        check(BuiltinOp::BUCKETIZE, 1, params(), &[Some(T::new(&[2, 2], &ints))], &[want()]);
        let bytes = Some(T::new(&[2, 2], &[0u8; 4]));
        assert!(error(BuiltinOp::BUCKETIZE, 1, params(), &[bytes], &[want()]).contains("of type UINT8"));
    }
}
