    // The last tiles exceed the output: their surplus reads elements inside and writes nothing.
    let wo = min(o, p.out_c - {{WIDTH}}u);
#if IN_VEC4
    let channel = wo / p.group_out * p.group_v;
#else
    let channel = wo / p.group_out * p.group_c;
#endif
#if !INTEGERS
    let bias = bias_of(wo / 4u);
#endif
#for c in 0..WIDTH
#if INTEGERS
    let bias_{{c}} = S();
#else
#if SPLIT
    // One of the parts adds the bias.
    let bias_{{c}} = select(0.0, bias[(wo + {{c}}u) % 4u], local.y == 0u);
#else
    let bias_{{c}} = bias[(wo + {{c}}u) % 4u];
#endif
#endif
#for i in 0..PIXELS
    var sum_{{i}}_{{c}} = bias_{{c}};
#endfor
#endfor
