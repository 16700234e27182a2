/* Symbols of all the kinds that compete for an address; the expected names are in test_symtab.c. */
        .text
        .macro label name, type, bind, size
        .\bind \name
        .type \name, \type
        .if \size
        .size \name, \size
        .endif
        \name:
        .endm

        .balign 4096
        label __GI___libc_call, %function, local, 32
        label __libc_call, %function, globl, 32
        label __call, %function, weak, 32
        label call, %function, weak, 32
        label call_label, %notype, globl, 0
        .skip 32

        .balign 64
        .globl outer
        .type outer, %function
        outer:
        .skip 16
        label inner, %function, globl, 8
        .skip 8
        .skip 16
        label inner2, %function, globl, 8
        .skip 8
        .skip 16
        .size outer, 64

        .balign 64
        label bare, %function, globl, 0
        .skip 64
        .section .note.GNU-stack,"",%progbits
