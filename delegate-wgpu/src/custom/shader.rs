//! A shader of a custom op, validated by naga at registration, with its bindings.

use std::error::Error as _;

use delegraph_shaders::{Binding, Caps, Element};
use naga::valid::{Capabilities, ValidationFlags, Validator};
use naga::{
    AddressSpace, ArraySize, GlobalVariable, Module, ScalarKind, ShaderStage, StorageAccess, TypeInner,
};

use super::WgpuOpError;

/// A validated shader.
#[derive(Debug)]
pub(crate) struct Shader {
    pub wgsl: String,
    /// In the order of the binding numbers.
    pub bindings: Vec<Binding>,
    /// Arrays that the shader reads, in the order of the binding numbers.
    pub reads: Vec<Array>,
    /// The array that the shader writes.
    pub writes: Array,
    /// Bytes of the uniform block; 0 without one.
    pub uniform: usize,
}

/// A storage array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Array {
    pub element: Element,
    /// Tensor elements per array element: 1, or 2 or 4 for vectors.
    pub lanes: usize,
}

/// The line of the error, counted from 1, and its message.
type Wrong = (Option<u32>, String);

impl Shader {
    /// Parses and validates a shader; `number` is its index, for messages.
    pub(crate) fn new(op: &str, number: usize, wgsl: &str) -> Result<Self, WgpuOpError> {
        Self::check(wgsl).map_err(|(line, message)| {
            let text = line.and_then(|line| wgsl.lines().nth(usize::try_from(line).ok()?.checked_sub(1)?));
            let text = text.map(|text| text.trim().to_owned());
            WgpuOpError { op: op.to_owned(), shader: number, line, text, message }
        })
    }

    fn check(wgsl: &str) -> Result<Self, Wrong> {
        let module = naga::front::wgsl::parse_str(wgsl)
            .map_err(|e| (e.location(wgsl).map(|at| at.line_number), e.to_string()))?;
        let info = Validator::new(ValidationFlags::all(), Capabilities::empty()).validate(&module);
        info.map_err(|e| {
            let line = e.location(wgsl).map(|at| at.line_number);
            let mut text = e.as_inner().to_string();
            let mut cause = e.as_inner().source();
            while let Some(deeper) = cause {
                text += &format!(": {deeper}");
                cause = deeper.source();
            }
            (line, text)
        })?;
        let wrong = |text: String| Err((None, text));
        let entry = match module.entry_points.as_slice() {
            [entry] if entry.stage == ShaderStage::Compute && entry.name == "main" => entry,
            _ => return wrong("the shader needs exactly one entry point, `@compute fn main`".into()),
        };
        let most = Caps::WEBGPU;
        let [x, y, z] = entry.workgroup_size;
        let invocations = [x, y, z].iter().map(|&n| u64::from(n)).product::<u64>();
        if invocations > most.max_invocations_per_workgroup.into() || z > 64 {
            let limit = most.max_invocations_per_workgroup;
            return wrong(format!(
                "a workgroup of {x} × {y} × {z} invocations; \
                    WebGPU guarantees {limit}, at most 64 of them in z"
            ));
        }
        if !module.overrides.is_empty() {
            return wrong("`override` constants are not supported: put the value into the text".into());
        }
        let bytes = |variable: &GlobalVariable| module.types[variable.ty].inner.size(module.to_ctx());
        let shared: u32 = module
            .global_variables
            .iter()
            .filter(|(_, v)| v.space == AddressSpace::WorkGroup)
            .map(|(_, v)| bytes(v))
            .fold(0, u32::saturating_add);
        if shared > most.max_workgroup_storage {
            let limit = most.max_workgroup_storage;
            return wrong(format!("{shared} bytes of workgroup memory; WebGPU guarantees {limit}"));
        }
        Self::bind(wgsl, &module).map_err(|text| (None, text))
    }

    fn bind(wgsl: &str, module: &Module) -> Result<Self, String> {
        let bound = module.global_variables.iter().filter_map(|(_, v)| Some((v.binding?, v)));
        let mut bound: Vec<_> = bound.collect();
        bound.sort_by_key(|(binding, _)| (binding.group, binding.binding));
        let (mut bindings, mut reads, mut writes, mut uniform) = (Vec::new(), Vec::new(), None, None);
        for (i, (binding, variable)) in bound.iter().enumerate() {
            let (group, number) = (binding.group, binding.binding);
            if group != 0 || usize::try_from(number) != Ok(i) {
                return Err(format!(
                    "@group({group}) @binding({number}); \
                        only group 0 with bindings numbered from 0 without gaps is supported"
                ));
            }
            let at = |e: String| format!("@binding({number}): {e}");
            bindings.push(match variable.space {
                AddressSpace::Uniform if uniform.is_none() => {
                    uniform = Some(module.types[variable.ty].inner.size(module.to_ctx()));
                    Binding::Uniform
                }
                AddressSpace::Uniform => {
                    return Err(at("a second uniform block; only one is supported".into()));
                }
                AddressSpace::Storage { access } if access.contains(StorageAccess::STORE) => {
                    if writes.replace(array(module, variable).map_err(at)?).is_some() {
                        return Err(at(
                            "a second array that is written; only one is supported, use a shader for each"
                                .into(),
                        ));
                    }
                    Binding::Output
                }
                AddressSpace::Storage { .. } => {
                    reads.push(array(module, variable).map_err(at)?);
                    Binding::Input(u8::try_from(reads.len() - 1).map_err(|e| at(e.to_string()))?)
                }
                _ => return Err(at("only storage arrays and one uniform block are supported".into())),
            });
        }
        let storages = reads.len() + 1;
        let most = Caps::WEBGPU.max_storage_buffers as usize;
        if storages > most {
            return Err(format!("{storages} storage arrays; WebGPU guarantees {most}"));
        }
        let writes = writes.ok_or("the shader writes nothing: no `var<storage, read_write>` is bound")?;
        Ok(Shader { wgsl: wgsl.to_owned(), bindings, reads, writes, uniform: uniform.unwrap_or(0) as usize })
    }
}

fn array(module: &Module, variable: &GlobalVariable) -> Result<Array, String> {
    let wanted =
        "only runtime-sized arrays of f32, i32 or u32, or of vectors of two or four of them, are supported";
    let wanted = || wanted.to_owned();
    let TypeInner::Array { base, size: ArraySize::Dynamic, .. } = module.types[variable.ty].inner else {
        return Err(wanted());
    };
    let (scalar, lanes) = match module.types[base].inner {
        TypeInner::Scalar(scalar) => (scalar, 1),
        TypeInner::Vector { size: naga::VectorSize::Bi, scalar } => (scalar, 2),
        TypeInner::Vector { size: naga::VectorSize::Quad, scalar } => (scalar, 4),
        _ => return Err(wanted()),
    };
    let element = match (scalar.kind, scalar.width) {
        (ScalarKind::Float, 4) => Element::F32,
        (ScalarKind::Sint, 4) => Element::I32,
        (ScalarKind::Uint, 4) => Element::Bool,
        _ => return Err(wanted()),
    };
    Ok(Array { element, lanes })
}
