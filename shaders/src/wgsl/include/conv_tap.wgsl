            // One tap of the kernel: the pixels at the offset `across` and `down` from the windows' corners, with the
            // weights from `w` on.
#if !POINTWISE
#for v in 0..VECTORS
            let x_{{v}} = window_{{v}}.x + across;
            let y_{{v}} = window_{{v}}.y + down;
            let inside_{{v}} = inside(x_{{v}}, y_{{v}});
            let at_{{v}} = pixel_at(x_{{v}}, y_{{v}}, window_{{v}}.z) + channel;
#endfor
#endif
#if SUMS == 1
            for (var block = 0u; block < p.group_v; block += p.block) {
            let end = min(block + p.block, p.group_v);
#for i in 0..PIXELS
#for c in 0..WIDTH
            var part_{{i}}_{{c}} = 0.0;
#endfor
#endfor
#else
            let block = 0u;
            let end = p.group_v;
#endif
#if SPLIT
            for (var k = block + local.y; k < end; k += {{UNROLLED * ROWS}}u) {
                // All loads come first, so that their latencies overlap.
#for u in 0..UNROLLED
                let k_{{u}} = min(k + {{u * ROWS}}u, end - 1u);
#for c in 0..WIDTH
#if INTEGERS
                let w_{{u}}_{{c}} = expand(w + k_{{u}} * p.out_c + {{c}}u);
#else
                let w_{{u}}_{{c}} = select(V(), weight(w + k_{{u}} * p.out_c + {{c}}u), k + {{u * ROWS}}u < end);
#endif
#endfor
#if INTEGERS
                let read_{{u}} = load(at_0, k_{{u}}) - zero_0;
#else
                let read_{{u}} = load(at_0, k_{{u}});
#endif
#if POINTWISE
                let v_{{u}} = select(V(), read_{{u}}, k + {{u * ROWS}}u < end);
#else
                let v_{{u}} = select(V(), read_{{u}}, inside_0 & (k + {{u * ROWS}}u < end));
#endif
#endfor
#for u in 0..UNROLLED
#for c in 0..WIDTH
#if SUMS == 0
                sum_0_{{c}} += dot(v_{{u}}, w_{{u}}_{{c}});
#else
#if SUMS == 1
                part_0_{{c}} += dot(v_{{u}}, w_{{u}}_{{c}});
#else
                sum_0_{{c}} += products(v_{{u}}, w_{{u}}_{{c}});
#endif
#endif
#endfor
#endfor
            }
#else
            for (var k = block; k < end; k++) {
#for c in 0..WIDTH
#if INTEGERS
                let w_{{c}} = expand(w + {{c}}u);
#else
                let w_{{c}} = weight(w + {{c}}u);
#endif
#endfor
#if SHARED
#for v in 0..VECTORS
#if INTEGERS
                let read_{{v}} = load(at_{{v}}, k) - zero_{{v}};
#else
                let read_{{v}} = load(at_{{v}}, k);
#endif
#if POINTWISE
                let mine_{{v}} = read_{{v}};
#else
                let mine_{{v}} = select(V(), read_{{v}}, inside_{{v}});
#endif
#for i in 0..8
                let v_{{v * 8 + i}} = subgroupBroadcast(mine_{{v}}, {{i}}u);
#endfor
#endfor
#else
#for i in 0..PIXELS
#if INTEGERS
                let read_{{i}} = load(at_{{i}}, k) - zero_{{i}};
#else
                let read_{{i}} = load(at_{{i}}, k);
#endif
#if POINTWISE
                let v_{{i}} = read_{{i}};
#else
                let v_{{i}} = select(V(), read_{{i}}, inside_{{i}});
#endif
#endfor
#endif
#for i in 0..PIXELS
#for c in 0..WIDTH
#if SUMS == 0
                sum_{{i}}_{{c}} += dot(v_{{i}}, w_{{c}});
#else
#if SUMS == 1
                part_{{i}}_{{c}} += dot(v_{{i}}, w_{{c}});
#else
                sum_{{i}}_{{c}} += products(v_{{i}}, w_{{c}});
#endif
#endif
#endfor
#endfor
                w += p.out_c;
            }
#endif
#if SUMS == 1
#for i in 0..PIXELS
#for c in 0..WIDTH
            sum_{{i}}_{{c}} += part(part_{{i}}_{{c}});
#endfor
#endfor
            }
#endif
#if SPLIT
            // To the next tap's weights.
            w += p.group_v * p.out_c;
#endif
