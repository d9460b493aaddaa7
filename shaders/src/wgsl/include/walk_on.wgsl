        i += {{WORKGROUP}}u;
#if RANK == 1
        digit_0 = i;
#else
        var carry = 0u;
#for d in 0..RANK - 1
        digit_{{d}} += p.step_{{d}} + carry;
        carry = select(0u, 1u, digit_{{d}} >= p.extent_{{d}});
        digit_{{d}} -= carry * p.extent_{{d}};
#endfor
        digit_{{RANK - 1}} += p.step_{{RANK - 1}} + carry;
#endif
    }
