    var rest = group.z;
    var a_base = 0u;
    var b_base = 0u;
#for d in 0..RANK
    a_base += rest % p.extent_{{d}} * p.a_stride_{{d}};
    b_base += rest % p.extent_{{d}} * p.b_stride_{{d}};
    rest /= p.extent_{{d}};
#endfor
