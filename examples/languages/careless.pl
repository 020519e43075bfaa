use strict;
use warnings;

sub save {
    open(my $file, '>', 'cfg.json') or die $!;
    print $file shift;
    close($file) or die $!;
}

save('{"colour": "blue"}');
print "saved\n";
