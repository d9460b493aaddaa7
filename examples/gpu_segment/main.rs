//! Segments a photo on the GPU without copies to the CPU. The application opens the device. A texture becomes the
//! model's input, and the model's mask goes into a buffer of the application. A shader of the application puts another
//! background behind the person. Only the finished picture is read back, for its file.
//!
//! ```sh
//! cargo run --release --example gpu_segment -- [OUT.png [MODEL.tflite PHOTO.png]]
//! ```
//!
//! The model has an input of `[1, height, width, 3]`, colours from 0 to 1, and a mask of `[1, height, width, 1]`, like
//! `selfie_segmentation.tflite`, which `scripts/fetch_models.py` fetches with a photo. Without these files, the model
//! is a single convolution that detects red pixels, and the photo is drawn.

use std::error::Error;
use std::path::{Path, PathBuf};

use delegraph::core::ops::Padding;
use delegraph::core::ops::conv_2d::Conv2DParams;
use delegraph::core::{BuiltinOp, ModelBuilder, Params, SubgraphBuilder};
use delegraph::delegate_wgpu::{WgpuDelegate, WgpuOptions};
use delegraph::{Interpreter, Model, Policy, TensorType, load};
use image::{Rgba, RgbaImage};

mod gpu;

use gpu::{Compositor, Gpu};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let out = arguments.first().cloned().unwrap_or_else(|| "segmented.png".into());
    let fetched = |name: &str| Some(models()?.join(name)).filter(|path| path.is_file());
    let files = match &arguments[..] {
        [_, model, photo] => Some((model.clone(), photo.clone())),
        _ => fetched("selfie_segmentation.tflite").zip(fetched("astronaut.png")),
    };
    let (model, photo) = match files {
        Some((model, photo)) => (load(model)?, image::open(photo)?.to_rgba8()),
        None => (red_is_person(64)?, drawn(320, 240)),
    };
    let picture = segment(&Gpu::open()?, model, &photo)?;
    picture.save(&out)?;
    println!("{}", out.display());
    Ok(())
}

/// The photo with another background, computed entirely on the GPU.
fn segment(gpu: &Gpu, model: Model, photo: &RgbaImage) -> Result<RgbaImage> {
    // The delegate works on the application's device.
    let (device, queue) = (gpu.device.clone(), gpu.queue.clone());
    let delegate = WgpuDelegate::with_device(device, queue, gpu.info.clone(), WgpuOptions::default());
    let builder = Interpreter::builder(model).delegate(delegate.clone());
    let mut interpreter = builder.policy(Policy::Require).build()?;

    let shape = |dims: &[usize]| {
        <[usize; 4]>::try_from(dims)
            .map_err(|_| format!("shape {dims:?}; only [1, height, width, channels] is supported"))
    };
    let input_shape = shape(interpreter.input_tensor(0)?.shape.dims())?;
    let [_, mask_height, mask_width, 1] = shape(interpreter.output_tensor(0)?.shape.dims())? else {
        return Err("the model's output is not a mask of one channel".into());
    };

    // Photo to input: scaled to fit and centered, with black around it.
    let mut input = delegate.texture_input(input_shape)?;
    let region = fit(photo.dimensions(), (input_shape[2], input_shape[1]));
    input.set_region(region)?;
    interpreter.set_input_buffer(0, Some(input.buffer()))?;

    // The mask: a buffer that the application's shader reads.
    let mask = gpu.buffer(4 * (mask_height * mask_width) as u64);
    interpreter.set_output_buffer(0, Some(delegate.output_buffer(&mask, 0, mask.size())?))?;

    // An application for videos would repeat the following for each frame, with one compositor.
    let compositor = Compositor::new(gpu, photo.dimensions());
    let frame = gpu.upload(photo);
    input.convert(&frame)?;
    interpreter.invoke()?;
    compositor.compose(gpu, &frame, &mask, [mask_width as u32, mask_height as u32], region);

    let read: Vec<_> = interpreter.delegate_stats().iter().filter_map(|stats| stats.readback_time).collect();
    if !read.is_empty() {
        return Err("the mask was read back to the CPU".into());
    }
    compositor.read(gpu)
}

/// The region that letterboxes a photo in a tensor without stretching it.
fn fit((width, height): (u32, u32), tensor: (usize, usize)) -> [f32; 4] {
    let (photo, tensor) = (width as f32 / height as f32, tensor.0 as f32 / tensor.1 as f32);
    let (across, down) = if photo > tensor { (1.0, photo / tensor) } else { (tensor / photo, 1.0) };
    [(1.0 - across) / 2.0, (1.0 - down) / 2.0, across, down]
}

/// The folder of fetched models.
fn models() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("DELEGRAPH_CACHE").or_else(|| Some(set("HOME")?.join(".cache/delegraph")))?;
    Some(Path::new(&cache).join("models"))
}

/// A model that segments red pixels.
fn red_is_person(size: usize) -> Result<Model> {
    let mut graph = SubgraphBuilder::new("main");
    let image = graph.input("image", TensorType::Float32, [1, size, size, 3]);
    let filter = graph.constant("filter", [1, 1, 1, 3], &[20.0f32, -10.0, -10.0]);
    let bias = graph.constant("bias", [1], &[-4.0f32]);
    let params = Conv2DParams::default().padding(Padding::Same).stride_w(1).stride_h(1);
    let redness = graph.node(BuiltinOp::CONV_2D, params).inputs([image, filter, bias]).output("redness");
    let mask = graph.node(BuiltinOp::LOGISTIC, Params::None).inputs([redness]).output("mask");
    graph.outputs([mask]);
    Ok(ModelBuilder::new().subgraph(graph).build()?)
}

/// A red disk on green stripes.
fn drawn(width: u32, height: u32) -> RgbaImage {
    RgbaImage::from_fn(width, height, |x, y| {
        let away = (x as f32 - width as f32 / 2.0).hypot(y as f32 - height as f32 / 2.0);
        match away < height as f32 / 3.0 {
            true => Rgba([220, 30, 40, 255]),
            false => Rgba([30, if x / 16 % 2 == 0 { 140 } else { 90 }, 60, 255]),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_person_stays_and_the_background_goes() {
        let gpu = match Gpu::open() {
            Ok(gpu) => gpu,
            Err(error) => return eprintln!("left out: {error}"),
        };
        let photo = drawn(320, 240);
        let picture = segment(&gpu, red_is_person(64).unwrap(), &photo).unwrap();
        assert_eq!(picture.dimensions(), photo.dimensions());
        assert_eq!(picture.get_pixel(160, 120), photo.get_pixel(160, 120), "the disk is the person");
        for corner in [(0, 0), (319, 0), (0, 239), (319, 239)] {
            let (x, y) = corner;
            let Rgba([red, green, blue, 255]) = *picture.get_pixel(x, y) else { panic!("it is opaque") };
            assert!(blue > 80 && i32::from(red) + i32::from(blue) > i32::from(green), "sky at {corner:?}");
        }
    }

    #[test]
    fn a_wide_photo_has_black_above_and_below() {
        assert_eq!(fit((200, 100), (64, 64)), [0.0, -0.5, 1.0, 2.0]);
        assert_eq!(fit((100, 200), (64, 64)), [-0.5, 0.0, 2.0, 1.0]);
    }
}
