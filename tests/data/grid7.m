function mpc = grid7
%GRID7  A small grid of our own making, which doesn't exist anywhere.
%   Seven buses, with one of everything: an isolated bus, a branch and a generator that are
%   out of service, parallel lines, a transformer with tap and shift, shunts.

%{
mpc.baseMVA = 1;  % a block of comments
%}

%% version and base
mpc.version = '2';
mpc.baseMVA = 100;   % MVA

%	number	type	Pd	Qd	Gs	Bs	area	Vm	Va	baseKV	zone	Vmax	Vmin
mpc.bus = [
	10	3	0	0	0	0	1	1.02	5	220	1	1.1	0.9;
	20	2	35	10	0	0	1	1	0	220	1	1.1	0.9;
	30	1	60	22.5	0	0	1	1	0	110	1	1.1	0.9; % the load's bus
	40, 1, 45, 15, 1.5, 12, 1, 1, 0, 110, 1, 1.1, 0.9
	50	1	20	-5	0	0	1	1	0	...
		110	1	1.1	0.9;
	60	2	10	+2.	0	0	1	1	0	110	1	1.1	.9;
	70	4	5	1	0	0	1	1	0	110	1	1.1	0.9;
];

mpc.gen = [	%bus	Pg	Qg	Qmax	Qmin	Vg	mBase	status	Pmax	Pmin
	10	0	0	Inf	-Inf	1.02	100	1	250	0;
	20	80	0	60	-60	1.01	100	1	120	0;
	20	15	3	20	-20	1.01	100	1	40	0;
	60	30	4	20	-20	1.03	100	0	50	0;
	70	5	1	20	-20	1	100	1	50	0;
];

%	from	to	r	x	b	rateA	rateB	rateC	ratio	angle	status	angmin	angmax
mpc.branch = [
	10	20	0.01	0.06	0.05	0	0	0	0	0	1	-360	360;
	10	30	0.02	0.12	0.04	0	0	0	0.98	0	1	-360	360;
	20	30	0.015	0.09	0.03	0	0	0	0	0	1	-360	360;
	20	40	0.005	0.1	0	0	0	0	1.02	-2.5	1	-360	360;
	30	40	0.02	0.08	2e-2	0	0	0	0	0	1	-360	360;
	30	40	0.03	0.1	0.02	0	0	0	0	0	1	-360	360;
	40	50	0.025	0.11	0.02	0	0	0	0	0	1	-360	360;
	50	60	0.02	0.09	0.02	0	0	0	0	0	1	-360	360;
	30	60	0.03	0.13	0.02	0	0	0	0	0	1	-360	360;
	10	50	0.03	0.13	0.02	0	0	0	0	0	0	-360	360;
	60	70	0.03	0.13	0.02	0	0	0	0	0	1	-360	360;
];

mpc.gencost = [2, 0, 0, 3, 0.01, 20, 0; 2 0 0 3 0.02 25 0];
mpc.bus_name = { 'North'; 'Sue''s'; "East ] }"; 'D'; 'E'; 'F'; 'G' };
