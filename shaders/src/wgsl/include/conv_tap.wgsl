            // One tap of the kernel: the pixels `across` and `down` from the windows' corners, and the
            // weights from `w` on.
#for v in 0..VECTORS
            let x_{{v}} = window_{{v}}.x + across;
            let y_{{v}} = window_{{v}}.y + down;
            let inside_{{v}} = inside(x_{{v}}, y_{{v}});
            let at_{{v}} = pixel_at(x_{{v}}, y_{{v}}, window_{{v}}.z) + channel;
#endfor
            for (var k = 0u; k < p.group_v; k++) {
#for c in 0..WIDTH
                let w_{{c}} = weights[w + {{c}}u];
#endfor
#if SHARED
#for v in 0..VECTORS
                let mine_{{v}} = select(V(), load(at_{{v}}, k), inside_{{v}});
#for i in 0..8
                let v_{{v * 8 + i}} = subgroupBroadcast(mine_{{v}}, {{i}}u);
#endfor
#endfor
#else
#for i in 0..PIXELS
                let v_{{i}} = select(V(), load(at_{{i}}, k), inside_{{i}});
#endfor
#endif
#for i in 0..PIXELS
#for c in 0..WIDTH
                sum_{{i}}_{{c}} += dot(v_{{i}}, w_{{c}});
#endfor
#endfor
                w += p.out_c;
            }
