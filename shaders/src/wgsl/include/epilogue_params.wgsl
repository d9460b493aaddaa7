    act_a: f32,
    act_b: f32,
    after_a: f32,
    after_b: f32,
