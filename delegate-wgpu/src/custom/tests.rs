//! Errors of shaders and plans, and results of valid ones.

use delegraph_core::{Bool, Op};
use delegraph_delegate_api::Rejection;

use super::*;
use crate::WgpuOptions;
use crate::testing::{T, check_custom_with, support_with};

const COPY: &str = "
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&y) { y[id.x] = x[id.x] * 2.0; }
}";

fn one(shader: &str) -> Result<WgpuOp, WgpuOpError> {
    WgpuOp::new("Mine", 1, &[shader], |node| Err(node.reject("it is a test")))
}

#[test]
fn invalid_shaders_are_rejected_with_the_line() {
    #[track_caller]
    fn check(shader: &str, want: &str) {
        let error = one(shader).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(error.starts_with("custom op \"Mine\", shader 0"), "{error}");
        assert!(error.contains(want), "{error}");
    }
    assert!(one(COPY).is_ok());
    check(
        &COPY.replace("x[id.x]", "w[id.x]"),
        "line 6, `if id.x < arrayLength(&y) { y[id.x] = w[id.x] * 2.0; \
            }`: no definition in scope for identifier: `w`",
    );
    check("fn main( {", "line 1");
    check(&COPY.replace("* 2.0", "* 2u"), "line 6");
    check(&COPY.replace("main", "other"), "exactly one entry point, `@compute fn main`");
    check(&COPY.replace("(64)", "(64, 8)"), "a workgroup of 64 × 8 × 1 invocations; WebGPU guarantees 256");
    check(
        &COPY.replace("binding(1)", "binding(2)"),
        "@group(0) @binding(2); only group 0 with bindings numbered from 0",
    );
    check(
        &COPY.replace("group(0) @binding(1)", "group(1) @binding(1)"),
        "@group(1) @binding(1); only group 0",
    );
    check(
        &COPY.replace("y: array<f32>", "y: array<vec3<f32>>").replace("= x[id.x]", "= vec3f(1.0)"),
        "@binding(1): only runtime-sized arrays",
    );
    check(&COPY.replace("read> x", "read_write> x"), "@binding(1): a second array that is written");
    check(
        &COPY.replace("var<storage, read_write> y", "var<storage, read> y").replace("y[id.x] =", "let z ="),
        "the shader writes nothing",
    );
    check(
        &(COPY.to_owned() + "\n@group(0) @binding(2) var t: texture_2d<f32>;"),
        "only storage arrays and one uniform block",
    );
    check(
        &(COPY.to_owned() + "\nvar<workgroup> big: array<f32, 5000>;"),
        "20000 bytes of workgroup memory; WebGPU guarantees 16384",
    );
    check(&("override n: u32 = 1;\n".to_owned() + COPY), "`override` constants are not supported");
    check(&("enable f16;\n".to_owned() + COPY + "\nvar<private> h: f16;"), "");
}

type Plan = fn(&WgpuNode<'_>) -> Result<WgpuPlan, Rejection>;

fn copy(node: &WgpuNode<'_>) -> WgpuDispatch {
    let groups = node.workgroups(node.input(0).unwrap().shape.elements(), 64).unwrap();
    WgpuDispatch::new(0, [WgpuTensor::Input(0)], WgpuTensor::Output(0)).workgroups(groups)
}

fn options(shader: &str, plan: Plan) -> WgpuOptions {
    WgpuOptions::default().with_custom_op(WgpuOp::new("Mine", 2, &[shader], plan).unwrap())
}

#[test]
fn invalid_plans_are_rejections() {
    let x = || T::new(&[2, 3], &[0.0f32; 6]);
    let check = |plan: Plan, want: &str| {
        let answer = support_with(options(COPY, plan), Op::custom("Mine"), 1, &[Some(x())], &[x()]);
        assert!(answer.is_none_or(|answer| answer.unwrap_err().to_string().contains(want)), "{want}");
    };
    check(|node| Err(Rejection::CostModel(format!("version {}", node.version()))), "version 1");
    check(
        |node| Ok(WgpuPlan::new([[3usize, 2]]).dispatch(copy(node))),
        "output 0 has the shape [2, 3], the GPU kernel computes [3, 2]",
    );
    check(|_| Ok(WgpuPlan::new([[2usize, 3]; 2])), "1 output, the GPU kernel has 2");
    check(|_| Ok(WgpuPlan::new([[2usize, 3]])), "no dispatch of Mine writes output 0");
    check(|node| node.input(1).map(|_| WgpuPlan::new([[1usize]])), "input 1 is missing");
    check(|node| node.options().map(|_| WgpuPlan::new([[1usize]])), "not a FlexBuffer map");
    check(|node| node.workgroups(usize::MAX, 1).map(|_| WgpuPlan::new([[1usize]])), "1 to a workgroup");
    check(|node| Ok(WgpuPlan::new([[2usize, 3]]).dispatch(copy(node).workgroups([1, 70_000, 1]))), "70000");
    check(
        |node| Ok(WgpuPlan::new([[2usize, 3]]).dispatch(copy(node).uniform([0u8; 4]))),
        "4 bytes for the uniform block, the shader's has 0",
    );
    check(
        |_| {
            let wrong = WgpuDispatch::new(1, [WgpuTensor::Input(0)], WgpuTensor::Output(0));
            Ok(WgpuPlan::new([[2usize, 3]]).dispatch(wrong))
        },
        "dispatch 0 of Mine: there is no shader 1",
    );
    check(
        |_| Ok(WgpuPlan::new([[2usize, 3]]).dispatch(WgpuDispatch::new(0, [], WgpuTensor::Output(0)))),
        "it names 0 tensors to read, the shader binds 1",
    );
    check(
        |_| {
            let wrong = WgpuDispatch::new(0, [WgpuTensor::Input(0)], WgpuTensor::Temporary(0));
            Ok(WgpuPlan::new([[2usize, 3]]).dispatch(wrong))
        },
        "there is no temporary 0",
    );
    check(
        |_| {
            let wrong = WgpuDispatch::new(0, [WgpuTensor::Output(0)], WgpuTensor::Output(0));
            Ok(WgpuPlan::new([[2usize, 3]]).dispatch(wrong))
        },
        "it reads what it writes",
    );
    check(
        |node| Ok(WgpuPlan::new([[2usize, 3]]).temporary([1usize << 20, 1 << 20]).dispatch(copy(node))),
        "a temporary of shape",
    );
    // An unsupported type, and a version above the highest.
    let integers = T::new(&[2], &[1i32, 2]);
    let plan: Plan = |node| Ok(WgpuPlan::new([[2usize]]).dispatch(copy(node)));
    let answer =
        support_with(options(COPY, plan), Op::custom("Mine"), 1, &[Some(integers.clone())], &[integers]);
    let ty = TensorType::Int32;
    assert!(
        answer
            .is_none_or(|answer| answer == Err(Rejection::UnsupportedType { operand: "input 0".into(), ty }))
    );
}

#[test]
fn several_shaders_temporaries_uniforms_and_types() {
    // Half the sum of each row, computed through a temporary; and whether it is positive.
    const ROWS: &str = "
@group(0) @binding(0) var<storage, read> x: array<vec2<f32>>;
@group(0) @binding(1) var<storage, read_write> sums: array<f32>;
@group(0) @binding(2) var<uniform> size: vec4<u32>;
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) id: vec3<u32>) {
    var sum = 0.0;
    for (var i = 0u; i < size.x; i++) {
        let pair = x[id.x * size.x + i];
        sum += pair.x + pair.y;
    }
    sums[id.x] = sum;
}";
    const TRUTH: &str = "
@group(0) @binding(0) var<storage, read> sums: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) id: vec3<u32>) {
    y[id.x] = select(0u, 1u, sums[id.x] > 0.0);
}";
    let half = COPY.replace("2.0", "0.5");
    let op = WgpuOp::new("Mine", 1, &[ROWS, &half, TRUTH], |node| {
        let &[rows, columns] = node.input(0)?.shape.dims() else { return Err(node.reject("not a matrix")) };
        let size = [columns as u32 / 2, 0, 0, 0].map(u32::to_le_bytes).concat();
        let count = [rows as u32, 1, 1];
        let (sums, half, truth) = (WgpuTensor::Temporary(0), WgpuTensor::Output(0), WgpuTensor::Output(1));
        Ok(WgpuPlan::new([[rows], [rows]])
            .temporary([rows])
            .dispatch(WgpuDispatch::new(0, [WgpuTensor::Input(0)], sums).uniform(size).workgroups(count))
            .dispatch(WgpuDispatch::new(1, [sums], half))
            .dispatch(WgpuDispatch::new(2, [sums], truth).workgroups(count)))
    });
    let options = WgpuOptions::default().with_custom_op(op.unwrap());
    let x = T::new(&[2, 4], &[1.0f32, 2.0, 3.0, 4.0, -1.0, -2.0, 0.5, 0.5]);
    let expected = [T::new(&[2], &[5.0f32, -1.0]), T::new(&[2], &[Bool(1), Bool(0)])];
    check_custom_with(options.clone(), Op::custom("Mine"), &[], &[Some(x)], &expected);
    let odd = T::new(&[1, 3], &[1.0f32, 2.0, 3.0]);
    let outputs = [T::new(&[1], &[0.0f32]), T::new(&[1], &[Bool(0)])];
    let answer = support_with(options, Op::custom("Mine"), 1, &[Some(odd)], &outputs);
    let text = "input 0 has 3 elements, the shader takes 2 at a time";
    assert!(answer.is_none_or(|answer| answer.unwrap_err().to_string().contains(text)));
}

/// Where this crate has a shader for a custom op, the application's shader takes precedence.
#[test]
fn an_application_replaces_a_custom_op() {
    let op = WgpuOp::new("Convolution2DTransposeBias", 1, &[COPY], |node| {
        Ok(WgpuPlan::new([node.input(0)?.shape.clone()]).dispatch(copy(node)))
    });
    let options = WgpuOptions { trusted_shaders: true, ..WgpuOptions::default() }.with_custom_op(op.unwrap());
    let (x, expected) = (T::new(&[3], &[1.0f32, 2.0, 3.0]), T::new(&[3], &[2.0f32, 4.0, 6.0]));
    check_custom_with(options, Op::custom("Convolution2DTransposeBias"), &[], &[Some(x)], &[expected]);
}
