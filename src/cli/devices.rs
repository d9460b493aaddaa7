//! `devices`: the adapters that the wgpu delegate can run on.

use delegraph::delegate_wgpu::{AdapterDescription, adapters};
use serde::Serialize;

use super::failure::{Exit, Failure};
use super::output::{Document, Output, bytes, table};

/// List GPU adapters with their drivers, limits and features
#[derive(clap::Args)]
pub(crate) struct Arguments {}

#[derive(Serialize)]
struct Devices {
    adapters: Vec<Adapter>,
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

/// The limits that matter to compute.
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
    out.print(&Devices { adapters: adapters().iter().map(Adapter::new).collect() })?;
    Ok(Exit::Fine)
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
        if self.adapters.is_empty() {
            return "no GPU adapter found: install a Vulkan driver (on Debian, `apt install mesa-vulkan-drivers` gives \
                    a software one)\n"
                .into();
        }
        let mut text = String::new();
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
