//! Checks of a kernel's source that need no adapter.

use std::collections::BTreeMap;

use delegraph_shaders::{Access, Caps, Kernel};
use naga::valid::{Capabilities, ValidationFlags, Validator};

pub(crate) mod kernels;
mod spirv;

/// Maximum size of a kernel's text in bytes. Compilers of drivers and browsers need time for every statement.
const MAX_TEXT: usize = 36 << 10;
/// Maximum number of expressions of a kernel and its functions, each counted once: an estimate of the cost of compiling.
const MAX_EXPRESSIONS: usize = 3000;

/// Panics unless the source is valid with exactly the features, bindings and uniform block that the kernel declares, within
/// WebGPU's default limits and the workgroup memory of a device, and can be written for Vulkan, Metal and DirectX.
#[track_caller]
pub(crate) fn check_within(kernel: &Kernel, caps: &Caps) {
    check_as_declared(kernel, caps);
    let half = halved(kernel);
    if half.variant != kernel.variant {
        check_as_declared(&half, caps);
    }
}

/// Returns the kernel with 16-bit floats in all buffers that can hold them.
pub(crate) fn halved(kernel: &Kernel) -> Kernel {
    let has_form = |bit: &u32| kernel.variant.clone().with_halves(1 << bit).source().is_ok();
    let is_storage = |bit: &u32| {
        let access = kernel.variant.bindings[*bit as usize].access();
        matches!(access, Access::Read | Access::ReadWrite)
    };
    let bits = (0..kernel.variant.bindings.len() as u32).filter(is_storage).filter(has_form);
    let variant = kernel.variant.clone().with_halves(bits.map(|bit| 1 << bit).sum());
    Kernel { variant, ..kernel.clone() }
}

#[track_caller]
fn check_as_declared(kernel: &Kernel, caps: &Caps) {
    let key = &kernel.variant.key;
    let wgsl = kernel.variant.source().unwrap_or_else(|e| panic!("{key}: {e}"));
    let fail = |what: &str, why: String| -> ! { panic!("{key}: {what}: {why}\n{}", wgsl) };
    let mut capabilities = Capabilities::empty();
    if kernel.variant.features.subgroups {
        capabilities |= Capabilities::SUBGROUP;
    }
    if kernel.variant.features.halves {
        capabilities |= Capabilities::SHADER_FLOAT16_IN_FLOAT32;
    }
    if kernel.variant.features.f16 {
        capabilities |= Capabilities::SHADER_FLOAT16;
    }
    if kernel.variant.features.matrices {
        capabilities |= Capabilities::COOPERATIVE_MATRIX;
    }
    let options = naga::front::wgsl::Options { capabilities, ..naga::front::wgsl::Options::new() };
    let module = naga::front::wgsl::Frontend::new_with_options(options)
        .parse(&wgsl)
        .unwrap_or_else(|e| fail("parsing", e.emit_to_string(&wgsl)));
    let info = Validator::new(ValidationFlags::all(), capabilities)
        .validate(&module)
        .unwrap_or_else(|e| fail("validating", e.emit_to_string(&wgsl)));

    let functions = module.functions.iter().map(|(_, function)| function);
    let functions = functions.chain(module.entry_points.iter().map(|entry| &entry.function));
    let expressions: usize = functions.map(|function| function.expressions.len()).sum();
    assert!(wgsl.len() <= MAX_TEXT, "{key}: {} bytes of text, at most {MAX_TEXT} are allowed", wgsl.len());
    assert!(
        expressions <= MAX_EXPRESSIONS,
        "{key}: {expressions} expressions, at most {MAX_EXPRESSIONS} are allowed"
    );

    let mut bindings = BTreeMap::new();
    for (_, variable) in module.global_variables.iter() {
        let Some(binding) = variable.binding else { continue };
        let access = match variable.space {
            naga::AddressSpace::Uniform => {
                let size = module.types[variable.ty].inner.size(module.to_ctx());
                let block = size.next_multiple_of(16) as usize;
                assert_eq!(block, kernel.uniform.len(), "{key}: uniform block and its bytes");
                Access::Uniform
            }
            naga::AddressSpace::Storage { access } if access.contains(naga::StorageAccess::STORE) => {
                Access::ReadWrite
            }
            naga::AddressSpace::Storage { .. } => Access::Read,
            naga::AddressSpace::Handle => Access::Texture,
            other => fail("binding", format!("{other:?}")),
        };
        assert_eq!(binding.group, 0, "{key}");
        bindings.insert(binding.binding as usize, access);
    }
    let declared: BTreeMap<usize, Access> =
        kernel.variant.bindings.iter().map(|b| b.access()).enumerate().collect();
    assert_eq!(bindings, declared, "{key}: bindings of the text and of the kernel");
    let buffer = |a: &&Access| !matches!(a, Access::Uniform | Access::Texture);
    let storage = declared.values().filter(buffer).count() as u32;
    assert!(storage <= Caps::WEBGPU.max_storage_buffers, "{key}: {storage} storage buffers");

    let entry = &module.entry_points[0];
    assert_eq!(entry.name, kernel.variant.entry, "{key}");
    let invocations: u32 = entry.workgroup_size.iter().product();
    assert!(invocations <= Caps::WEBGPU.max_invocations_per_workgroup, "{key}: {invocations} invocations");
    let mut layouter = naga::proc::Layouter::default();
    layouter.update(module.to_ctx()).unwrap();
    let memory: u32 = module
        .global_variables
        .iter()
        .filter(|(_, v)| v.space == naga::AddressSpace::WorkGroup)
        .map(|(_, v)| layouter[v.ty].size)
        .sum();
    assert!(memory <= caps.max_workgroup_storage, "{key}: {memory} bytes of workgroup memory");

    let spirv = naga::back::spv::Options { lang_version: (1, 3), ..Default::default() };
    let words = naga::back::spv::write_vec(&module, &info, &spirv, None)
        .unwrap_or_else(|e| fail("writing SPIR-V", e.to_string()));
    if spirv::is_checked(key.as_str()) {
        spirv::check(&words).unwrap_or_else(|e| fail("validating SPIR-V", e));
    }
    if kernel.variant.features.matrices {
        // Metal has matrices of other sizes, and DirectX none.
        return;
    }
    let metal = naga::back::msl::Options { lang_version: (2, 1), ..Default::default() };
    naga::back::msl::write_string(&module, &info, &metal, &Default::default())
        .unwrap_or_else(|e| fail("writing MSL", e.to_string()));
    let hlsl =
        naga::back::hlsl::Options { shader_model: naga::back::hlsl::ShaderModel::V6_2, ..Default::default() };
    let pipeline = naga::back::hlsl::PipelineOptions::default();
    let mut text = String::new();
    naga::back::hlsl::Writer::new(&mut text, &hlsl, &pipeline)
        .write(&module, &info, None)
        .unwrap_or_else(|e| fail("writing HLSL", e.to_string()));
}
