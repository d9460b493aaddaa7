//! As a plugin, the GPU delegate claims the same nodes and computes the same results as within the application.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)] // Clippy recognizes only `#[test]` functions as tests.

use delegraph_core::{Model, ModelBytes};
use delegraph_delegate_api::Delegate;
use delegraph_delegate_api::plugin::{PluginLibrary, PluginOptions};
use delegraph_delegate_wgpu::{WgpuDelegate, WgpuOptions, adapters};
use delegraph_interpreter::Interpreter;

#[test]
fn a_plugin_claims_and_computes_what_the_delegate_does() {
    if adapters().is_empty() {
        println!("left out: there is no GPU adapter");
        return;
    }
    let file = include_bytes!("../../../assets/digits/digits_float32.tflite");
    let run = |delegate: Box<dyn Delegate>| {
        let model = Model::from_bytes(ModelBytes::new(&file[..])).unwrap();
        let mut interpreter = Interpreter::builder(model).delegate(delegate).build().unwrap();
        for batch in [1, 3] {
            interpreter.resize_input(0, &[batch, 8, 8, 1]).unwrap();
            let pixels = interpreter.input_mut::<f32>(0).unwrap().iter_mut().enumerate();
            pixels.for_each(|(i, pixel)| *pixel = (i * 7 % 17) as f32 / 16.0);
            interpreter.invoke().unwrap();
        }
        (interpreter.report().clone(), interpreter.output::<f32>(0).unwrap().to_vec())
    };
    // SAFETY: the table is the static one that `export_delegate!` creates in this crate.
    let library = unsafe { PluginLibrary::from_table("wgpu", delegraph_wgpu::delegraph_delegate_plugin()) };
    let plugin = library.unwrap().delegate(&PluginOptions::default()).unwrap();
    let own = run(Box::new(WgpuDelegate::new(WgpuOptions::default()).unwrap()));
    assert!(own.0.delegated_nodes() > 0, "{:?}", own.0);
    assert_eq!(run(Box::new(plugin)), own);
}
