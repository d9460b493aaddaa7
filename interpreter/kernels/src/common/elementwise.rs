//! Kernels that compute each element of the output from one element of each of two inputs.

use delegraph_core::error::InvalidData;
use delegraph_core::kernel::{InvokeContext, PrepareContext};
use delegraph_core::{Element, Result};

use super::index::Nest;
use super::number::Number;
use super::prepared::Invoke;

/// Broadcasts the two inputs to the output.
pub(crate) fn nest(cx: &PrepareContext<'_>) -> Result<Nest<2>> {
    Ok(Nest::broadcast(cx.input(0)?.shape(), cx.input(1)?.shape(), cx.output(0)?.shape()))
}

/// `output = f(input 0, input 1)`, element by element.
pub(crate) fn elementwise<T: Element, O: Element>(
    cx: &mut PrepareContext<'_>,
    f: impl Fn(T, T) -> O + Send + 'static,
) -> Result<Invoke> {
    let nest = nest(cx)?;
    Ok(Box::new(move |cx| zip(&nest, cx, &f)))
}

/// Not inlined: the code of a boxed closure is compiled twice, as `FnMut` and as `FnOnce`.
#[inline(never)]
fn zip<T: Element, O: Element>(
    nest: &Nest<2>,
    cx: &mut InvokeContext<'_>,
    f: &impl Fn(T, T) -> O,
) -> Result<()> {
    let (a, b, output) = (cx.input(0)?, cx.input(1)?, cx.output(0)?);
    nest.zip_polled(a, b, output, f, polls(cx))
}

/// Returns a closure that polls. Its type does not depend on element types, so that its code is compiled once.
fn polls<'c>(cx: &'c InvokeContext<'_>) -> impl FnMut() -> Result<()> + 'c {
    move || cx.check_interrupted()
}

/// Like [`elementwise`], for functions whose input 1 must not be 0.
pub(crate) fn checked_divisor<T: Number>(
    cx: &mut PrepareContext<'_>,
    f: impl Fn(T, T) -> T + Send + 'static,
) -> Result<Invoke> {
    let nest = nest(cx)?;
    Ok(Box::new(move |cx| {
        if cx.input::<T>(1)?.contains(&T::default()) {
            return Err(InvalidData::DivisionByZero.into());
        }
        zip(&nest, cx, &f)
    }))
}

/// Calls `$f` with the type of input 0, if it is one of the listed types; other types are an error.
macro_rules! on_types {
    ($cx:expr, [$($ty:ty),*], $f:path) => {
        match $cx.input(0)?.ty() {
            $(ty if ty == <$ty as delegraph_core::Element>::TYPE => $f($cx, std::marker::PhantomData::<$ty>),)*
            _ => Err($crate::common::prepared::unsupported_type("input 0", $cx.input(0)?)),
        }
    };
}
pub(crate) use on_types;
