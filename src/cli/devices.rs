//! `devices`: the instruction sets of the CPU kernels, and the adapters that the wgpu delegate can run on.

use delegraph::delegate_wgpu::{AdapterDescription, adapters};
use delegraph::interpreter::kernels::{ISA_VARIABLE, Isa};
use serde::Serialize;

use super::failure::{Exit, Failure};
use super::output::{Document, Output, bytes, table};

/// List the instruction sets of the CPU kernels, and GPU adapters with their drivers, limits and features
#[derive(clap::Args)]
pub(crate) struct Arguments {}

#[derive(Serialize)]
struct Devices {
    instruction_sets: Vec<InstructionSet>,
    adapters: Vec<Adapter>,
}

/// An instruction set that kernels are compiled for.
#[derive(Serialize)]
struct InstructionSet {
    name: &'static str,
    available: bool,
    chosen: bool,
    /// The instructions of each kind of kernel; missing if the set is not available.
    #[serde(skip_serializing_if = "Option::is_none")]
    floats: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    products_of_bytes: Option<&'static str>,
}

#[derive(Serialize)]
struct Adapter {
    name: String,
    backend: String,
    r#type: String,
    driver: String,
    driver_info: String,
    vendor: u32,
    device: u32,
    subgroup_size: (u32, u32),
    limits: Limits,
    features: Vec<String>,
}

/// The limits that are relevant for compute shaders.
#[derive(Serialize)]
struct Limits {
    max_buffer_size: u64,
    max_storage_buffer_binding_size: u64,
    max_storage_buffers_per_shader_stage: u32,
    max_compute_workgroup_storage_size: u32,
    max_compute_invocations_per_workgroup: u32,
    max_compute_workgroup_size: [u32; 3],
    max_compute_workgroups_per_dimension: u32,
    min_storage_buffer_offset_alignment: u32,
}

pub(crate) fn run(_: &Arguments, out: &Output) -> Result<Exit, Failure> {
    let instruction_sets = Isa::all_names().iter().map(|name| InstructionSet::new(name)).collect();
    out.print(&Devices { instruction_sets, adapters: adapters().iter().map(Adapter::new).collect() })?;
    Ok(Exit::Fine)
}

impl InstructionSet {
    fn new(name: &'static str) -> Self {
        let isa = Isa::named(name);
        InstructionSet {
            name,
            available: isa.is_some(),
            chosen: isa == Some(Isa::best()),
            floats: isa.map(Isa::float_instructions),
            products_of_bytes: isa.map(Isa::byte_instructions),
        }
    }

    fn row(&self) -> Vec<String> {
        let state = match (self.chosen, self.available) {
            (true, _) => "chosen",
            (false, true) => "available",
            (false, false) => "not on this processor",
        };
        let cell = |text: Option<&str>| text.unwrap_or_default().to_owned();
        vec![self.name.into(), state.into(), cell(self.floats), cell(self.products_of_bytes)]
    }
}

impl Adapter {
    fn new(adapter: &AdapterDescription) -> Self {
        let (info, limits) = (&adapter.info, &adapter.limits);
        Adapter {
            name: info.name.clone(),
            backend: info.backend.to_string(),
            r#type: format!("{:?}", info.device_type),
            driver: info.driver.clone(),
            driver_info: info.driver_info.clone(),
            vendor: info.vendor,
            device: info.device,
            subgroup_size: (info.subgroup_min_size, info.subgroup_max_size),
            limits: Limits {
                max_buffer_size: limits.max_buffer_size,
                max_storage_buffer_binding_size: limits.max_storage_buffer_binding_size,
                max_storage_buffers_per_shader_stage: limits.max_storage_buffers_per_shader_stage,
                max_compute_workgroup_storage_size: limits.max_compute_workgroup_storage_size,
                max_compute_invocations_per_workgroup: limits.max_compute_invocations_per_workgroup,
                max_compute_workgroup_size: [
                    limits.max_compute_workgroup_size_x,
                    limits.max_compute_workgroup_size_y,
                    limits.max_compute_workgroup_size_z,
                ],
                max_compute_workgroups_per_dimension: limits.max_compute_workgroups_per_dimension,
                min_storage_buffer_offset_alignment: limits.min_storage_buffer_offset_alignment,
            },
            features: adapter.features.iter_names().map(|(name, _)| name.to_lowercase()).collect(),
        }
    }
}

impl Document for Devices {
    fn text(&self) -> String {
        let header = ["instruction set", "", "floats", "products of bytes"];
        let sets = table(&header, &[], self.instruction_sets.iter().map(InstructionSet::row));
        let mut text = format!("CPU ({ISA_VARIABLE} selects an instruction set)\n{sets}\n");
        if self.adapters.is_empty() {
            text += "no GPU adapter found: install a Vulkan driver (on Debian, `apt install mesa-vulkan-drivers` gives \
                     a software one)\n";
        }
        for adapter in &self.adapters {
            let limits = &adapter.limits;
            let size = |n: u64| usize::try_from(n).map_or_else(|_| n.to_string(), bytes);
            let [x, y, z] = limits.max_compute_workgroup_size;
            let (low, high) = adapter.subgroup_size;
            let rows = [
                ("type", adapter.r#type.clone()),
                ("backend", adapter.backend.clone()),
                ("driver", format!("{} {}", adapter.driver, adapter.driver_info)),
                ("subgroups", format!("{low} to {high}")),
                ("buffer", size(limits.max_buffer_size)),
                ("storage binding", size(limits.max_storage_buffer_binding_size)),
                ("storage buffers", limits.max_storage_buffers_per_shader_stage.to_string()),
                ("workgroup memory", size(limits.max_compute_workgroup_storage_size.into())),
                (
                    "workgroup size",
                    format!("{x} x {y} x {z}, at most {}", limits.max_compute_invocations_per_workgroup),
                ),
                ("workgroups", format!("{} per dimension", limits.max_compute_workgroups_per_dimension)),
                ("features", adapter.features.join(", ")),
            ];
            let rows = rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]);
            text += &format!("{}\n{}\n", adapter.name, table(&["", ""], &[], rows));
        }
        text
    }
}
