//! VAR_HANDLE, READ_VARIABLE, ASSIGN_VARIABLE: variables that nodes share by name.

use delegraph_core::kernel::{InvokeContext, Kernel, PrepareContext};
use delegraph_core::ops::variables::{UNASSIGNED, VarHandleParams, mismatch};
use delegraph_core::{BuiltinOp, Error, MutableOpResolver, Registration, Result, TensorType};

use crate::common::prepared::{Invoke, prepared};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver
        .add_builtin(BuiltinOp::VAR_HANDLE, prepared(handle), 1)
        .add_builtin(
            BuiltinOp::READ_VARIABLE,
            Registration::new(|_| Ok(Read::default())).with_side_effects(),
            1,
        )
        .add_builtin(BuiltinOp::ASSIGN_VARIABLE, Registration::new(|_| Ok(Assign)).with_side_effects(), 1);
}

fn handle(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let p = cx.params::<VarHandleParams>()?;
    let handle = cx.host().resources().handle(&p.container, &p.shared_name);
    Ok(Box::new(move |cx| {
        cx.output::<i32>(0)?.fill(handle);
        Ok(())
    }))
}

#[derive(Default)]
struct Read {
    ty: Option<TensorType>,
    /// Whether the output takes the variable's shape.
    any_shape: bool,
}

impl Kernel for Read {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        self.ty = Some(cx.output(0)?.ty());
        // After an invocation the output has the variable's rank, so its declared rank is checked only once.
        self.any_shape |= cx.output(0)?.shape().rank() == 0;
        Ok(())
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        let handle = variable(cx)?;
        let value = cx.host().resources().variable(handle)?;
        let value = value.ok_or_else(|| Error::Kernel(UNASSIGNED.into()))?;
        let (shape, found) = (value.shape.clone(), value.ty);
        let want = cx.output_shape(0)?;
        let ty = self.ty.unwrap_or(found);
        if found != ty || (!self.any_shape && shape != *want) {
            return Err(Error::Kernel(mismatch((found, &shape), (ty, want))));
        }
        if found == TensorType::String {
            let bytes = cx.host().resources().variable(handle)?.map_or(0, |value| value.bytes().len());
            cx.resize_output_bytes(0, shape, bytes)?;
        } else if self.any_shape {
            cx.resize_output(0, shape)?;
        }
        let output = cx.output_bytes(0)?;
        match cx.host().resources().variable(handle)? {
            Some(value) if value.bytes().len() == output.len() => output.copy_from_slice(value.bytes()),
            _ => return Err(Error::State("the variable changed while it was read".into())),
        }
        Ok(())
    }
}

struct Assign;

impl Kernel for Assign {
    fn prepare(&mut self, _: &mut PrepareContext<'_>) -> Result<()> {
        Ok(())
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        let handle = variable(cx)?;
        let (ty, shape) = (cx.input_tensor(1)?.ty, cx.input_shape(1)?.clone());
        let bytes = cx.input_bytes(1)?;
        cx.host().resources().assign(handle, ty, &shape, bytes)
    }
}

fn variable(cx: &mut InvokeContext<'_>) -> Result<i32> {
    cx.input::<i32>(0)?.first().copied().ok_or_else(|| Error::Kernel("the handle is empty".into()))
}
